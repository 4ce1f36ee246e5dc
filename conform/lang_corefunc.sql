-- chapter: lang_corefunc
-- feature: abs, sign, round, min and max of several
SELECT abs(-5), abs(5.5), abs('-7'), abs('x'), abs(NULL), abs(x'2d31'), typeof(abs('3'));
SELECT abs(-9223372036854775808);
SELECT sign(-3), sign(0), sign(2.5), sign('x'), sign('-1'), sign(NULL);
SELECT round(2.5), round(-2.5), round(2.345, 2), round(1e20), round('3.7'), round(NULL), round(5, -1), round(123.456, 50), typeof(round(2));
SELECT round(1, 2, 3);
SELECT min(1, 2, 0), max(1, 2, 'a'), min(NULL, 1), max('a', 'B'), max(1), min(1, 1.0), max(x'01', 'z');
SELECT min();
-- feature: coalesce, ifnull, nullif, iif, if
SELECT coalesce(NULL, NULL, 3, 4), coalesce(NULL, NULL), ifnull(NULL, 'x'), ifnull(1, 2), nullif(1, 1), nullif(1, 2), nullif('a', 'A' COLLATE NOCASE);
SELECT iif(1 < 2, 'yes', 'no'), iif(NULL, 'yes', 'no'), iif(0, 'yes'), if(1, 2, 3), iif(0, 1, 0, 2, 3);
SELECT coalesce(1);
SELECT coalesce();
SELECT ifnull(1);
SELECT iif(1);
-- feature: length, octet_length, char, unicode
SELECT length('abc'), length('äöü'), length(x'010203'), length(12345), length(1.5), length(NULL), length(''), length('a' || char(0) || 'b');
SELECT octet_length('äöü'), octet_length(x'0102'), octet_length(123), octet_length(NULL);
SELECT char(72, 228, 8364, 128512), unicode('ä'), unicode(''), unicode(NULL), unicode('😀x'), hex(char(0)), hex(char(1114112)), char();
-- feature: lower, upper, trim
SELECT lower('ABC Ä'), upper('abc ä'), lower(NULL), upper(12.5), lower(x'41');
SELECT trim('  x '), ltrim('  x '), rtrim('  x '), trim('xxaxx', 'x'), ltrim('abcabd', 'ab'), rtrim('abcabd', 'db'), trim('äaä', 'ä'), trim(NULL), trim('x', NULL), trim('x', '');
SELECT '[' || trim(char(9) || 'tab' || char(9)) || ']';
-- feature: substr and substring
SELECT substr('hello', 2), substr('hello', 2, 3), substr('hello', -3), substr('hello', -3, 2), substr('hello', 0), substr('hello', 0, 2), substr('hello', 3, -2), substr('hello', 99), substr('hello', -99, 96);
SELECT substring('äöüß', 2, 2), hex(substr(x'0102030405', 2, 3)), substr(12345, 2, 2), substr(NULL, 1), substr('x', NULL), substr('hello', 2.9, '2');
SELECT substr('x');
-- feature: instr, replace, concat, concat_ws
SELECT instr('hello', 'l'), instr('hello', ''), instr('hello', 'z'), instr(x'010203', x'02'), instr('äöü', 'ü'), instr(NULL, 'a'), instr('a', NULL), instr(12345, 34);
SELECT replace('aXbX', 'X', 'yy'), replace('abc', '', 'z'), replace('abc', 'b', ''), replace(NULL, 'a', 'b'), replace(121, 1, 3), replace('aaa', 'aa', 'b');
SELECT concat('a', NULL, 1, 2.5), concat(NULL), concat_ws('-', 'a', NULL, 'b'), concat_ws(NULL, 'a', 'b'), concat_ws(',', 'x');
SELECT concat();
SELECT concat_ws('x');
-- feature: hex, unhex, quote, typeof, zeroblob
SELECT hex('abc'), hex(x'00ff'), hex(NULL), hex(''), hex(12), unhex('616263'), unhex('6g'), hex(unhex('61-62', '-')), unhex(NULL), unhex('6');
SELECT quote('it''s'), quote(NULL), quote(1), quote(1.5), quote(x'0aff'), quote(1e300), quote('a' || char(0) || 'b');
SELECT typeof(1), typeof(1.0), typeof('x'), typeof(x'00'), typeof(NULL), typeof(1 + 1.0), typeof('1' + 1), typeof(1 || 1);
SELECT length(zeroblob(100)), zeroblob(2) = x'0000', hex(zeroblob(3)), length(zeroblob(-1)), typeof(zeroblob(0));
SELECT length(zeroblob(10000000000));
SELECT unistr('caf\u00e9'), unistr('\\'), unistr('\0041'), unistr('\+01F600');
SELECT unistr('\x');
SELECT unistr_quote('é' || char(10));
-- feature: printf and format
SELECT printf('%d|%5d|%-5d|%05d|%+d|%,d', 42, 42, 42, 42, 42, 1234567);
SELECT printf('%f|%.2f|%10.3f|%e|%g|%G', 3.14159, 3.14159, 3.14159, 31415.9, 0.0001, 1e20);
SELECT format('%s|%10s|%-10s|%.2s|%c|%q|%Q|%w|%%', 'abc', 'abc', 'abc', 'abc', 'xyz', 'it''s', 'it''s', 'a"b');
SELECT printf('%x|%X|%o|%#x|%08x', 255, 255, 8, 255, 255), printf('%lld', 9223372036854775807), printf('%u', -1);
SELECT printf('%d'), printf('%s'), printf(NULL), printf('%d', 'x'), printf('%s', NULL), printf('%Q', NULL), printf('plain', 1, 2), printf('%z', 1);
SELECT printf('%*d|%-*d|%.*f', 6, 42, 6, 42, 2, 3.14159), printf('%!.15g', 0.1), printf('%#g', 1.0), printf('%!s', 'äö'), printf('%5s|%!5s', 'ä', 'ä'), printf('%i', 2.9);
SELECT printf();
-- feature: like, glob as functions, likely, unlikely, likelihood
SELECT like('a%', 'ABC'), like('a\%', 'a%', '\'), glob('a*', 'abc'), glob('A*', 'abc'), like(NULL, 'x');
SELECT likely(5), unlikely(NULL), likelihood('x', 0.5);
SELECT likelihood(1, 2.0);
SELECT likelihood(1, 'x');
SELECT like('a');
-- feature: soundex
SELECT soundex('Robert'), soundex('Rupert'), soundex(''), soundex(NULL), soundex('123');
-- feature: subtype and other functions that are rare
SELECT sqlite_version() = '3.54.1', length(sqlite_source_id()) > 50, sqlite_compileoption_used('ENABLE_FTS5'), sqlite_compileoption_used('ENABLE_GEOPOLY'), sqlite_compileoption_get(10000);
SELECT count(*) > 10 FROM pragma_function_list;
SELECT load_extension('nothing.so');
SELECT load_extension('nothing.so', 'entry');
SELECT fts3_tokenizer('simple');
SELECT sqlite_log(1, 'x'), sqlite_offset(1);
-- feature: random numbers have a type and a range
SELECT typeof(random()), typeof(randomblob(4)), length(randomblob(10)), length(randomblob(0)), random() = random(), abs(random() % 10) < 10;
SELECT randomblob(-5) IS NULL, length(randomblob('3'));
SELECT length(randomblob(10000000000));
-- feature: last_insert_rowid, changes and total_changes in a transaction
CREATE TABLE t(a INTEGER PRIMARY KEY, b);
BEGIN;
INSERT INTO t(b) VALUES (1), (2), (3);
SELECT last_insert_rowid(), changes();
UPDATE t SET b = 0 WHERE a > 1;
SELECT changes();
SELECT last_insert_rowid();
DELETE FROM t;
SELECT changes();
INSERT INTO t SELECT last_insert_rowid() + 10, changes();
SELECT * FROM t;
COMMIT;
-- feature: last_insert_rowid, changes and total_changes between transactions
SELECT changes();
SELECT total_changes();
SELECT last_insert_rowid();
INSERT INTO t(b) VALUES ('x');
SELECT changes(), total_changes() > 0, last_insert_rowid();
-- feature: functions that are wrong
SELECT nothing(1);
SELECT length();
SELECT length(1, 2);
SELECT upper(DISTINCT 'x');
SELECT lower(*);
SELECT main.lower('X');
