CREATE VIRTUAL TABLE product_text USING fts5 (
    name, description, content = 'product', content_rowid = 'id', tokenize = 'porter'
);

CREATE TRIGGER product_added AFTER INSERT ON product BEGIN
    INSERT INTO product_text (rowid, name, description)
    VALUES (new.id, new.name, new.description);
END;

INSERT INTO product_text (product_text) VALUES ('rebuild');
