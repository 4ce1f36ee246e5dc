//! An optional driver of `bench kv`: redb.

mod kv_work;
mod protocol;

use kv_work::Store;
use protocol::{Arguments, Result};
use redb::{Database, Durability, ReadableDatabase, TableDefinition};

const TABLE: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("kv");

struct Redb {
    database: Database,
    durability: Durability,
}

impl Store for Redb {
    fn fill(&self, keys: u64, value: &[u8]) -> Result<()> {
        let transaction = self.database.begin_write()?;
        {
            let mut table = transaction.open_table(TABLE)?;
            for key in 1..=keys {
                table.insert(key, value)?;
            }
        }
        Ok(transaction.commit()?)
    }

    fn put(&self, key: u64, value: &[u8]) -> Result<()> {
        let mut transaction = self.database.begin_write()?;
        transaction.set_durability(self.durability)?;
        transaction.open_table(TABLE)?.insert(key, value)?;
        Ok(transaction.commit()?)
    }

    fn get(&self, key: u64) -> Result<Option<Vec<u8>>> {
        let transaction = self.database.begin_read()?;
        let table = transaction.open_table(TABLE)?;
        Ok(table.get(key)?.map(|value| value.value().to_vec()))
    }
}

fn main() -> Result<()> {
    let arguments = Arguments::new();
    let is_new = !std::path::Path::new(arguments.text("path")).exists();
    let durability = match arguments.text("durability") {
        "durable" => Durability::Immediate,
        _ => Durability::None,
    };
    let database = Database::create(arguments.text("path"))?;
    kv_work::run(&arguments, &Redb { database, durability }, is_new)
}
