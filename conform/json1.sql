-- chapter: json1
-- feature: json, json_valid, json_error_position and JSON5
SELECT json(' { "this" : "is", "a": [ "test" ] } '), json('[1,2.5,null,true,false,"x"]'), json('5'), json('"text"'), json(NULL);
SELECT json('{a:1, ''b'':0x1F, c:+5, d:.5, e:5., f:Infinity, g:NaN, /* comment */ h:[1,2,],}');
SELECT json('{"a":1,"a":2}'), json('{"\u00e4":"\ud83d\ude00"}'), json('[1,2'||']');
SELECT json('{"a":}');
SELECT json('{"a":1');
SELECT json('nothing');
SELECT json('');
SELECT json_valid('{"x":35}'), json_valid('{x:35}'), json_valid('{"x":35'), json_valid(NULL), json_valid(5), json_valid('{x:35}', 2), json_valid('{x:35}', 6), json_valid(jsonb('{"x":35}'), 4), json_valid(jsonb('{"x":35}'), 8), json_valid(x'00', 4);
SELECT json_valid('x', 0);
SELECT json_valid('x', 16);
SELECT json_error_position('{"x":35}'), json_error_position('{"x":35'), json_error_position('{"x"::35}'), json_error_position(NULL);
-- feature: json_array, json_object, json_quote
SELECT json_array(1, 2, '3', 4), json_array('[1,2]'), json_array(json_array(1, 2)), json_array(1, NULL, '3', '[4,5]', '{"six":7.7}'), json_array(), json_array(json('{"a":1}'));
SELECT json_object('a', 2, 'c', 4), json_object('a', 2, 'c', '{e:5}'), json_object('a', 2, 'c', json_object('e', 5)), json_object(), json_object('a', NULL);
SELECT json_object('a');
SELECT json_object(1, 2);
SELECT json_object(NULL, 2);
SELECT json_array(x'00');
SELECT json_quote(3.14159), json_quote('verdant'), json_quote('[1]'), json_quote(json('[1]')), json_quote('[1,'), json_quote(NULL), json_quote('a"b\c' || char(10));
SELECT json_quote(x'00');
-- feature: json_array_length and json_type
SELECT json_array_length('[1,2,3,4]'), json_array_length('[1,2,3,4]', '$'), json_array_length('[1,2,3,4]', '$[2]'), json_array_length('{"one":[1,2,3]}'), json_array_length('{"one":[1,2,3]}', '$.one'), json_array_length('{"one":[1,2,3]}', '$.two');
SELECT json_type('{"a":[2,3.5,true,false,null,"x"]}'), json_type('{"a":[2,3.5]}', '$.a'), json_type('{"a":[2,3.5,true,false,null,"x"]}', '$.a[1]'), json_type('[true]', '$[0]'), json_type('[null]', '$[0]'), json_type('["x"]', '$[0]'), json_type('[1]', '$[9]');
SELECT json_array_length('[1,2');
SELECT json_type('[1]', 'a');
-- feature: json_extract and the operators -> and ->>
SELECT json_extract('{"a":2,"c":[4,5,{"f":7}]}', '$'), json_extract('{"a":2,"c":[4,5,{"f":7}]}', '$.c'), json_extract('{"a":2,"c":[4,5,{"f":7}]}', '$.c[2]'), json_extract('{"a":2,"c":[4,5,{"f":7}]}', '$.c[2].f'), json_extract('{"a":2,"c":[4,5],"f":7}', '$.c', '$.a'), json_extract('{"a":2,"c":[4,5],"f":7}', '$.c[#-1]'), json_extract('{"a":2}', '$.x'), json_extract('{"a":"xyz"}', '$.a'), json_extract('{"a":null}', '$.a');
SELECT '{"a":2,"c":[4,5,{"f":7}]}' -> '$', '{"a":2,"c":[4,5]}' -> 'c', '{"a":2,"c":[4,5]}' -> 'c' -> 0, '[11,22,33]' -> 1, '[11,22,33]' -> -1, '{"a":"x"}' -> 'a', '{"a":"x"}' ->> 'a', '{"a":null}' -> 'a', '{"a":null}' ->> 'a', '{"a":[1]}' ->> '$.a', '{"a b":1}' ->> '$."a b"', NULL -> 'a', '{"a":1}' -> NULL;
SELECT typeof('{"a":1.0}' ->> 'a'), typeof('{"a":true}' ->> 'a'), typeof('{"a":12345678901234567890}' ->> 'a'), typeof('{"a":{}}' ->> 'a');
SELECT '{"a":' -> 'a';
SELECT json_extract('{"a":1}', '$.a[');
SELECT json_extract('{"a":1}', 'a');
SELECT json_extract('{"a":1}', '$[x]');
SELECT json_extract('{"a":1}');
-- feature: json_insert, json_replace, json_set, json_remove, json_patch, json_array_insert
SELECT json_insert('[1,2,3,4]', '$[#]', 99), json_insert('{"a":2,"c":4}', '$.a', 99), json_insert('{"a":2,"c":4}', '$.e', 99), json_insert('[1,[2,3],4]', '$[1][#]', 99), json_insert('{}', '$.a.b.c', 1);
SELECT json_replace('{"a":2,"c":4}', '$.a', 99), json_replace('{"a":2,"c":4}', '$.e', 99), json_replace('[1,2]', '$[1]', json('[9]'));
SELECT json_set('{"a":2,"c":4}', '$.a', 99), json_set('{"a":2,"c":4}', '$.e', 99), json_set('{"a":2,"c":4}', '$.c', '[97,96]'), json_set('{"a":2,"c":4}', '$.c', json('[97,96]')), json_set('{"a":2}', '$.a', NULL, '$.b', 'x', '$.c', 1.5);
SELECT json_remove('[0,1,2,3,4]', '$[2]'), json_remove('[0,1,2,3,4]', '$[2]', '$[0]'), json_remove('[0,1,2,3,4]', '$[#-1]', '$[0]'), json_remove('{"x":25,"y":42}'), json_remove('{"x":25,"y":42}', '$.z'), json_remove('{"x":25,"y":42}', '$.y'), json_remove('{"x":25}', '$');
SELECT json_patch('{"a":1,"b":2}', '{"c":3,"d":4}'), json_patch('{"a":[1,2],"b":2}', '{"a":9}'), json_patch('{"a":[1,2],"b":2}', '{"a":null}'), json_patch('{"a":{"x":1,"y":2},"b":3}', '{"a":{"y":9},"c":8}'), json_patch('{"a":1}', '5');
SELECT json_array_insert('[1,2,3]', '$[1]', 99);
SELECT json_insert('[1]', '$[0]');
SELECT json_set('[1]', '$[0');
SELECT json_set('{"a":1', '$.a', 2);
SELECT json_set('[1]', '$[0]', x'00');
SELECT json_patch('{"a":1}', '{b');
-- feature: json_pretty
SELECT json_pretty('{"a":[1,2,{"b":null}],"c":{}}'), json_pretty('[]'), json_pretty('[1]', '--'), json_pretty(NULL);
-- feature: JSONB
SELECT hex(jsonb('{"a":1}')), hex(jsonb_array(1, 'x', NULL)), hex(jsonb_object('a', 1)), json(jsonb('{"a":[1,2.5,"x"]}')), typeof(jsonb('1'));
SELECT json(jsonb_set(jsonb('{"a":1}'), '$.b', 2)), json(jsonb_remove('[1,2,3]', '$[0]')), json(jsonb_insert('[1]', '$[#]', 2)), json(jsonb_replace('[1]', '$[0]', 5)), json(jsonb_extract('{"a":[1,2]}', '$.a')), json(jsonb_patch('{"a":1}', '{"b":2}'));
SELECT jsonb('{"a":1}') -> 'a', jsonb('{"a":1}') ->> 'a', json_extract(jsonb('[1,2]'), '$[1]'), json_type(jsonb('[1]')), json_array_length(jsonb('[1,2,3]'));
SELECT json(x'ffff');
SELECT jsonb('nothing');
-- feature: json_each and json_tree
SELECT key, value, type, atom, id, parent, fullkey, path FROM json_each('[1,"two",null,{"a":3}]');
SELECT key, value, type, atom, parent IS NULL, fullkey, path FROM json_tree('{"a":[1,2],"b":{"c":"x"}}');
SELECT value FROM json_each('{"a":[10,20,30]}', '$.a') WHERE value > 10;
SELECT fullkey FROM json_tree('{"a":[1,{"b":2}]}', '$.a') WHERE atom IS NOT NULL;
SELECT sum(value) FROM json_each(jsonb('[1,2,3]'));
SELECT * FROM json_each(NULL);
SELECT key FROM json_each('5');
SELECT * FROM json_each('{bad');
SELECT * FROM json_each;
SELECT * FROM json_tree('[1]', 'x');
SELECT j.value, k.value FROM json_each('[1,2]') j, json_each('[3,4]') k ORDER BY 1, 2;
-- feature: JSON in tables, indexes, constraints and generated columns
CREATE TABLE doc(id INTEGER PRIMARY KEY, body TEXT CHECK (json_valid(body)), name TEXT AS (body ->> '$.name'), tags AS (json_array_length(body, '$.tags')));
INSERT INTO doc(body) VALUES ('{"name":"a","tags":["x","y"]}'), ('{"name":"b","tags":[]}'), ('{"name":"c"}'), (NULL);
INSERT INTO doc(body) VALUES ('{bad');
CREATE INDEX doc_name ON doc(name);
SELECT id, name, tags FROM doc ORDER BY id;
SELECT doc.id, t.value FROM doc, json_each(doc.body, '$.tags') AS t ORDER BY 1, 2;
SELECT id FROM doc WHERE name = 'b';
EXPLAIN QUERY PLAN SELECT id FROM doc WHERE name = 'b';
UPDATE doc SET body = json_set(body, '$.tags[#]', 'new') WHERE body -> '$.tags' IS NOT NULL;
UPDATE doc SET body = json_remove(body, '$.name') WHERE id = 1;
SELECT id, body, name, tags FROM doc ORDER BY id;
SELECT json_group_array(json_object('id', id, 'name', name)) FROM doc;
SELECT json_group_object(id, tags) FROM doc;
DELETE FROM doc WHERE EXISTS (SELECT 1 FROM json_each(doc.body, '$.tags') WHERE value = 'x');
SELECT count(*) FROM doc;
