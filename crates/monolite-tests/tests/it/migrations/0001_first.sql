CREATE TABLE first(v);
