-- chapter: lang_aggfunc
CREATE TABLE t(g TEXT, i INT, r REAL, s TEXT, b BLOB);
INSERT INTO t VALUES ('a', 1, 1.5, 'x', x'01'), ('a', 2, NULL, 'y', x'02'), ('b', NULL, 2.5, NULL, NULL), ('b', 3, -1.5, 'x', x'00'), ('c', 4, 0.0, '10', x'ff'), (NULL, 5, 1e10, 'z', x'');
-- feature: count
SELECT count(*), count(), count(i), count(r), count(DISTINCT s), count(DISTINCT g) FROM t;
SELECT count(NULL), count(1), count('') FROM t;
SELECT g, count(*), count(i) FROM t GROUP BY g ORDER BY g;
SELECT count(DISTINCT i, r) FROM t;
SELECT count(*) FROM t WHERE 0;
-- feature: sum, total and avg
SELECT sum(i), total(i), avg(i), typeof(sum(i)), typeof(total(i)), typeof(avg(i)) FROM t;
SELECT sum(r), total(r), avg(r) FROM t;
SELECT sum(s), total(s), avg(s), typeof(sum(s)) FROM t;
SELECT sum(i), total(i), avg(i) FROM t WHERE 0;
SELECT sum(DISTINCT i), avg(DISTINCT r) FROM t;
SELECT sum(x) FROM (VALUES (9223372036854775807), (1)) AS v(x);
SELECT sum(column1) FROM (VALUES (9223372036854775807), (1));
SELECT total(column1) FROM (VALUES (9223372036854775807), (1));
SELECT sum(column1) FROM (VALUES (9223372036854775807), (1.0));
SELECT avg(column1) FROM (VALUES (9223372036854775807), (9223372036854775807));
SELECT sum(column1), typeof(sum(column1)) FROM (VALUES (1e308), (1e308), (-1e308));
SELECT sum(column1) FROM (VALUES (0.1), (0.2), (0.3), (-0.6));
-- feature: min and max
SELECT min(i), max(i), min(r), max(r), min(s), max(s), hex(min(b)), hex(max(b)) FROM t;
SELECT min(g), max(g) FROM t;
SELECT g, min(i), s FROM t GROUP BY g ORDER BY g;
SELECT max(i), s FROM t;
SELECT min(column1), max(column1) FROM (VALUES (1), ('1'), (x'31'), (NULL), (0.5));
SELECT min(s COLLATE NOCASE), max(s COLLATE NOCASE) FROM t;
-- feature: group_concat and string_agg
SELECT group_concat(s), group_concat(s, '-'), group_concat(i, ''), string_agg(s, '/') FROM t;
SELECT group_concat(DISTINCT s) FROM t;
SELECT group_concat(s, NULL) FROM t;
SELECT group_concat(s, g) FROM t;
SELECT group_concat(s) FROM t WHERE 0;
SELECT group_concat(DISTINCT s, '-') FROM t;
-- feature: ORDER BY inside an aggregate
SELECT group_concat(s ORDER BY s DESC) FROM t;
SELECT group_concat(s, '+' ORDER BY i) FROM t;
SELECT g, group_concat(i, ',' ORDER BY r DESC, i) FROM t GROUP BY g ORDER BY g;
SELECT sum(i ORDER BY r) FROM t;
SELECT json_group_array(i ORDER BY i DESC) FROM t;
SELECT group_concat(DISTINCT s ORDER BY s) FROM t;
SELECT abs(i ORDER BY i) FROM t;
-- feature: median and percentiles are not in this build
SELECT median(i) FROM t;
SELECT percentile(i, 50) FROM t;
SELECT percentile_cont(i, 0.5) FROM t;
-- feature: JSON aggregates
SELECT json_group_array(s), json_group_array(i) FROM t;
SELECT json_group_object(s, i) FROM t WHERE s IS NOT NULL;
SELECT json_group_object(g, r) FROM t;
SELECT hex(jsonb_group_array(i)) FROM t;
-- feature: aggregates of subqueries and outer references
SELECT (SELECT sum(i)) FROM t;
SELECT g, (SELECT count(*) FROM t AS u WHERE u.i > sum(t.i)) FROM t GROUP BY g ORDER BY g;
SELECT max((SELECT min(i) FROM t));
SELECT sum(i) + count(*) * 2, avg(i) / max(i) FROM t;
SELECT count(*) > 3 AND sum(i) > 10 FROM t;
-- feature: aggregates that are wrong
SELECT sum() FROM t;
SELECT sum(i, r) FROM t;
SELECT count(DISTINCT) FROM t;
SELECT count(DISTINCT *) FROM t;
SELECT group_concat() FROM t;
SELECT sum(count(*)) FROM t;
SELECT i FROM t WHERE sum(i) > 1;
SELECT nothing(i) FROM t;
SELECT sum(nothing) FROM t;
