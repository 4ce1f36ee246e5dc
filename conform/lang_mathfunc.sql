-- chapter: lang_mathfunc
-- feature: mathematical functions, which plain SQLite has not in this build
SELECT sqrt(4);
SELECT pow(2, 10);
SELECT sin(0), cos(0);
SELECT pi();
SELECT ceil(1.5);
SELECT log(10);
SELECT mod(5, 3);
SELECT degrees(1);
SELECT sqlite_compileoption_used('ENABLE_MATH_FUNCTIONS');
