CREATE TABLE second(v);
