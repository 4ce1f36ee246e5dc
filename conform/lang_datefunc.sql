-- chapter: lang_datefunc
-- feature: date, time, datetime, julianday, unixepoch of fixed times
SELECT date('2026-11-22'), time('13:14:15'), datetime('2026-11-22 13:14:15'), julianday('2026-11-22 12:00'), unixepoch('2026-11-22');
SELECT date('2026-11-22T13:14:15.678'), time('2026-11-22 13:14'), datetime('2026-11-22 13:14:15.999'), strftime('%s', '1970-01-01');
SELECT date(2460000.5), datetime(2460000.5), date('2460000.5'), datetime(0), date(5373484.5), date(-1), datetime(1e10);
SELECT datetime('13:14:15'), julianday('00:00:01'), date('12:30');
SELECT datetime('2026-11-22 13:14:15Z'), datetime('2026-11-22 13:14:15+05:30'), datetime('2026-11-22 13:14:15 -01:00');
-- feature: modifiers that add
SELECT date('2026-01-31', '+1 month'), date('2026-01-31', '+1 month', '-1 day'), date('2024-02-29', '+1 year'), date('2026-03-31', '-1 months');
SELECT datetime('2026-11-22', '+1.5 days'), datetime('2026-11-22', '-36 hours', '+90 minutes', '+30.5 seconds'), date('2026-11-22', '+01-02-03'), datetime('2026-11-22', '+00-00-01 12:30:15.5');
SELECT time('12:00', '+10:30'), time('12:00', '-10:30:15'), datetime('2026-11-22', '+1000000 days'), date('9999-12-31', '+1 day'), date('0000-01-01', '-1 day');
SELECT date('2026-01-31', '+1 month', 'floor'), date('2026-01-31', '+1 month', 'ceiling');
-- feature: start of, weekday, unixepoch, julianday, auto
SELECT date('2026-11-22', 'start of month'), date('2026-11-22', 'start of year'), datetime('2026-11-22 13:14', 'start of day');
SELECT date('2026-11-22', 'weekday 0'), date('2026-11-22', 'weekday 1'), date('2026-11-22', 'weekday 6');
SELECT datetime(1092941466, 'unixepoch'), datetime(1092941466, 'auto'), datetime(2460000.5, 'auto'), datetime(2460000.5, 'julianday'), datetime(-1, 'unixepoch');
SELECT date('2026-11-22', 'start of month', '+1 month', '-1 day'), date('2026-10-01', 'start of year', '+9 months', 'weekday 2');
SELECT datetime('2026-11-22 13:14:15', 'utc') IS NOT NULL, datetime('2026-11-22 13:14:15', 'localtime') IS NOT NULL;
SELECT datetime('2026-11-22 13:14:15.678', 'subsec'), unixepoch('2026-11-22 13:14:15.678', 'subsecond'), time('13:14:15.678', 'subsec');
-- feature: strftime
SELECT strftime('%Y-%m-%d %H:%M:%S', '2026-11-22 03:04:05'), strftime('%d %e %f %F %G %g', '2026-01-02 03:04:05.678'), strftime('%H %I %j %J %k %l', '2026-11-22 15:04:05');
SELECT strftime('%m %M %p %P %R %s', '2026-11-22 15:04:05'), strftime('%S %T %u %U %V %w %W %Y %%', '2026-11-22 15:04:05');
SELECT strftime('%Q', '2026-11-22'), strftime('', '2026-11-22'), strftime('%Y', NULL), strftime(NULL, '2026-11-22'), strftime('plain');
SELECT strftime('%w', date('2026-11-22', value || ' days')) FROM json_each('[0,1,2,3]');
-- feature: timediff
SELECT timediff('2026-11-22', '2025-10-21'), timediff('2025-10-21', '2026-11-22'), timediff('2026-03-01', '2024-02-29'), timediff('13:00', '12:30:15.5'), timediff('x', '2026-01-01');
SELECT datetime('2025-10-21', timediff('2026-11-22', '2025-10-21'));
-- feature: what is no time
SELECT date('2026-13-01'), date('2026-02-30'), date('2026-02-32'), date('26-1-1'), time('25:00'), time('12:60'), datetime('text'), date(NULL), date('2026-11-22', 'nothing'), date('2026-11-22', NULL), date('');
SELECT date('2026-11-22', 'weekday 7'), date('2026-11-22', '+1'), date('2026-11-22', '+x days'), julianday('2026-11-22', 'unixepoch');
SELECT strftime();
SELECT timediff('2026-11-22');
-- feature: the time now has a form, and is one time in a statement
SELECT length(date()), length(time()), length(datetime()), typeof(julianday()), typeof(unixepoch()), datetime('now') = datetime(), CURRENT_TIMESTAMP = datetime('now'), length(CURRENT_DATE), length(CURRENT_TIME);
SELECT count(DISTINCT strftime('%f', 'now')) FROM json_each('[1,2,3,4,5]');
CREATE TABLE t(a, at TEXT DEFAULT CURRENT_TIMESTAMP);
BEGIN;
INSERT INTO t(a) VALUES (1), (2);
SELECT count(DISTINCT at), min(length(at)) FROM t;
ROLLBACK;
-- feature: times in tables and indexes
CREATE TABLE event(id INTEGER PRIMARY KEY, at TEXT);
INSERT INTO event(at) VALUES ('2026-11-22 10:00'), ('2026-11-21 09:00'), ('2025-01-01'), (NULL);
SELECT id FROM event WHERE at BETWEEN '2026-01-01' AND '2026-12-31' ORDER BY at;
SELECT strftime('%Y', at) AS year, count(*) FROM event GROUP BY year ORDER BY year;
CREATE INDEX event_day ON event(date(at));
SELECT id FROM event WHERE date(at) = '2026-11-21';
CREATE INDEX event_now ON event(date(at, 'localtime'));
UPDATE event SET at = datetime(at, '+1 day');
SELECT * FROM event ORDER BY id;
