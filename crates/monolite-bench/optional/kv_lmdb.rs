//! An optional driver of `bench kv`: LMDB.

mod kv_work;
mod protocol;

use kv_work::Store;
use lmdb::{Database, DatabaseFlags, Environment, EnvironmentFlags, Transaction, WriteFlags};
use protocol::{Arguments, Result};

/// Address space for the data; the file is as large as what is in it.
const MAP_BYTES: usize = 4 << 30;

struct Lmdb {
    environment: Environment,
    database: Database,
}

impl Store for Lmdb {
    fn fill(&self, keys: u64, value: &[u8]) -> Result<()> {
        let mut transaction = self.environment.begin_rw_txn()?;
        for key in 1..=keys {
            transaction.put(self.database, &key.to_ne_bytes(), &value, WriteFlags::empty())?;
        }
        Ok(transaction.commit()?)
    }

    fn put(&self, key: u64, value: &[u8]) -> Result<()> {
        let mut transaction = self.environment.begin_rw_txn()?;
        transaction.put(self.database, &key.to_ne_bytes(), &value, WriteFlags::empty())?;
        Ok(transaction.commit()?)
    }

    fn get(&self, key: u64) -> Result<Option<Vec<u8>>> {
        let transaction = self.environment.begin_ro_txn()?;
        match transaction.get(self.database, &key.to_ne_bytes()) {
            Ok(value) => Ok(Some(value.to_vec())),
            Err(lmdb::Error::NotFound) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

fn main() -> Result<()> {
    let arguments = Arguments::new();
    let path = std::path::Path::new(arguments.text("path"));
    let is_new = !path.exists();
    let flags = match arguments.text("durability") {
        "durable" => EnvironmentFlags::NO_SUB_DIR,
        _ => EnvironmentFlags::NO_SUB_DIR | EnvironmentFlags::NO_SYNC,
    };
    let environment = Environment::new()
        .set_flags(flags)
        .set_map_size(MAP_BYTES)
        .set_max_readers(256)
        .open(path)?;
    let database = environment.create_db(None, DatabaseFlags::INTEGER_KEY)?;
    kv_work::run(&arguments, &Lmdb { environment, database }, is_new)
}
