BEGIN TRANSACTION;
CREATE TABLE "ef_temp_parent" (
    "id" INTEGER NOT NULL CONSTRAINT "PK_parent" PRIMARY KEY,
    "name" TEXT NOT NULL
);
INSERT INTO "ef_temp_parent" ("id", "name")
SELECT "id", IFNULL("name", '')
FROM "parent";
COMMIT;
PRAGMA foreign_keys = 0;
BEGIN TRANSACTION;
DROP TABLE "parent";
ALTER TABLE "ef_temp_parent" RENAME TO "parent";
COMMIT;
PRAGMA foreign_keys = 1;
BEGIN TRANSACTION;
CREATE INDEX "parent_name" ON "parent" ("name");
COMMIT;
