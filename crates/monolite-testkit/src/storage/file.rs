//! The engine's side of a simulated disk: its storage and its files.

use std::ffi::c_int;
use std::path::Path;
use std::sync::Arc;

use monolite::rusqlite::ffi;
use monolite::vfs::{
    Deletion, Direct, File, FileKind, IoError, LowerFile, Result, ShmRegion, ShmRequest, Storage,
    SyncFlags,
};

use super::inode::{SECTOR, What};
use super::{Asked, Disk, Fault, Operation, RealSyncs, name_of};

/// The storage of a database on `disk`.
pub(super) fn simulated(direct: Direct, disk: Disk) -> Arc<dyn Storage> {
    Arc::new(Simulated { direct, disk })
}

struct Simulated {
    direct: Direct,
    disk: Disk,
}

impl Storage for Simulated {
    fn open(
        &self,
        kind: FileKind,
        _path: Option<&Path>,
        _lower: &mut LowerFile,
    ) -> Result<Box<dyn File>> {
        // The lower file has just been opened, and created if it was not there.
        let inode = name_of(kind).map(|name| self.disk.model().open(name));
        let asked = self.disk.ask(Operation::Open, kind, 0, 0);
        let result = asked.fault.map_or(Ok(()), |_| Err(IoError::CANT_OPEN));
        self.disk.log(&asked.call, &result);
        result?;
        let syncs_directory = matches!(kind, FileKind::Wal | FileKind::Journal);
        let file = Simulation { disk: self.disk.clone(), kind, inode, syncs_directory };
        Ok(self.direct.around(kind, file))
    }

    fn delete(&self, deletion: &Deletion<'_>) -> Result {
        let is_wal = deletion.path().as_os_str().as_encoded_bytes().ends_with(b"-wal");
        let kind = if is_wal { FileKind::Wal } else { FileKind::Journal };
        let mark = self.disk.model().directory_mark();
        let asked = self.disk.ask(Operation::Delete, kind, 0, 0);
        let result = match asked.fault {
            Some(_) => Err(io_error(ffi::SQLITE_IOERR_DELETE)),
            None => self.direct.delete(deletion),
        };
        self.disk.log(&asked.call, &result);
        result?;
        let mut model = self.disk.model();
        let name = name_of(kind).expect("a WAL and a journal have names");
        model.delete(name);
        if deletion.syncs_directory() {
            let mut mark = mark;
            mark[name] = model.names[name].len();
            model.settle_directory(mark);
        }
        Ok(())
    }

    fn sync_wal(&self, wal: &std::fs::File) -> std::io::Result<()> {
        let begun = self.disk.model().begin_sync_of_wal();
        let asked = self.disk.ask(Operation::SyncWal, FileKind::Wal, 0, 0);
        let result = self.disk.synced(&asked, begun, || match self.disk.0.real_syncs {
            RealSyncs::Made => self.direct.sync_wal(wal),
            RealSyncs::Skipped => Ok(()),
        });
        let result = result.map_err(|error| error.unwrap_or_else(simulated_error));
        self.disk.log(&asked.call, &result);
        result
    }

    fn sync_directory(&self, directory: &Path) -> std::io::Result<()> {
        let mark = self.disk.model().directory_mark();
        let asked = self.disk.ask(Operation::SyncDirectory, FileKind::Database, 0, 0);
        let result = match (asked.fault, self.disk.0.real_syncs) {
            (Some(Fault::Unreported), _) => return Ok(()),
            (Some(_), _) => Err(simulated_error()),
            (None, RealSyncs::Made) => self.direct.sync_directory(directory),
            (None, RealSyncs::Skipped) => Ok(()),
        };
        self.disk.log(&asked.call, &result);
        result?;
        self.disk.model().settle_directory(mark);
        Ok(())
    }
}

fn simulated_error() -> std::io::Error {
    std::io::Error::other("simulated I/O error")
}

fn io_error(code: c_int) -> IoError {
    IoError::from_code(code).expect("an error's code is not zero")
}

impl Disk {
    /// Does a sync that began at a mark of an inode. A simulated failure has no error of its own.
    fn synced<E>(
        &self,
        asked: &Asked,
        begun: Option<(u64, u64)>,
        sync: impl FnOnce() -> std::result::Result<(), E>,
    ) -> std::result::Result<(), Option<E>> {
        let result = match asked.fault {
            Some(_) => Err(None),
            None => sync().map_err(Some),
        };
        let mut model = self.model();
        let inode = begun.and_then(|(id, mark)| Some((model.inodes.get_mut(&id)?, mark)));
        match inode {
            Some((inode, mark)) if result.is_ok() => inode.settle(mark),
            Some((inode, mark)) => inode.abandon(mark),
            None => {}
        }
        if asked.fault == Some(Fault::Unreported) { Ok(()) } else { result }
    }
}

/// One open file on a simulated disk.
struct Simulation {
    disk: Disk,
    kind: FileKind,
    /// None for a temporary file, of which a power cut leaves nothing.
    inode: Option<u64>,
    /// SQLite syncs the directory with the first sync of a new journal or WAL.
    syncs_directory: bool,
}

impl Simulation {
    fn ask(&self, operation: Operation, at: u64, bytes: usize) -> Asked {
        self.disk.ask(operation, self.kind, at, bytes as u64)
    }

    fn put(&self, lower: &mut LowerFile, data: &[u8], at: u64) -> Result {
        lower.write(data, at)?;
        self.disk.model().note(self.inode, What::Write { at: at as usize, data: data.into() });
        Ok(())
    }

    /// Writes as many sectors as the number of the call says, and fails.
    fn put_part(&self, lower: &mut LowerFile, data: &[u8], at: u64, number: u64) -> Result {
        let sectors = number as usize % (data.len() / SECTOR + 1);
        if sectors > 0 {
            self.put(lower, &data[..sectors * SECTOR], at)?;
        }
        Err(IoError::WRITE)
    }
}

/// The data with its first two sectors exchanged, or reversed if it is shorter than that.
fn garbled(data: &[u8]) -> Vec<u8> {
    let mut data = data.to_vec();
    if data.len() >= 2 * SECTOR {
        data[..2 * SECTOR].rotate_left(SECTOR);
    } else {
        data.reverse();
    }
    data
}

impl File for Simulation {
    fn read(&mut self, lower: &mut LowerFile, buf: &mut [u8], at: u64) -> Result {
        let asked = self.ask(Operation::Read, at, buf.len());
        let result = match asked.fault {
            Some(_) => Err(IoError::READ),
            None => lower.read(buf, at),
        };
        self.disk.log(&asked.call, &result);
        result
    }

    fn write(&mut self, lower: &mut LowerFile, data: &[u8], at: u64) -> Result {
        let asked = self.ask(Operation::Write, at, data.len());
        let result = match asked.fault {
            Some(Fault::Full) => Err(IoError::FULL),
            Some(Fault::Short) => self.put_part(lower, data, at, asked.call.number),
            Some(Fault::Garbled) => self.put(lower, &garbled(data), at),
            Some(Fault::Error | Fault::Unreported) => Err(IoError::WRITE),
            None => self.put(lower, data, at),
        };
        self.disk.log(&asked.call, &result);
        result
    }

    fn truncate(&mut self, lower: &mut LowerFile, size: u64) -> Result {
        let asked = self.ask(Operation::Truncate, 0, size as usize);
        let result = match asked.fault {
            Some(_) => Err(io_error(ffi::SQLITE_IOERR_TRUNCATE)),
            None => lower.truncate(size),
        };
        self.disk.log(&asked.call, &result);
        result?;
        self.disk.model().note(self.inode, What::Size(size as usize));
        Ok(())
    }

    fn sync(&mut self, lower: &mut LowerFile, flags: SyncFlags) -> Result {
        let (begun, directory) = {
            let model = self.disk.model();
            (self.inode.and_then(|id| model.begin_sync(id)), model.directory_mark())
        };
        let asked = self.ask(Operation::Sync, 0, 0);
        let result = self.disk.synced(&asked, begun, || match self.disk.0.real_syncs {
            RealSyncs::Made => lower.sync(flags),
            RealSyncs::Skipped => Ok(()),
        });
        let result = result.map_err(|error| error.unwrap_or(IoError::SYNC));
        self.disk.log(&asked.call, &result);
        result?;
        if asked.fault.is_none() && std::mem::take(&mut self.syncs_directory) {
            self.disk.model().settle_directory(directory);
        }
        Ok(())
    }

    fn size(&mut self, lower: &mut LowerFile) -> Result<u64> {
        let asked = self.ask(Operation::Size, 0, 0);
        let result = match asked.fault {
            Some(_) => Err(io_error(ffi::SQLITE_IOERR_FSTAT)),
            None => lower.size(),
        };
        self.disk.log(&asked.call, &result);
        result
    }

    fn shm_map(&mut self, lower: &mut LowerFile, request: ShmRequest) -> Result<ShmRegion> {
        let asked = self.ask(Operation::MapIndex, 0, 0);
        if asked.fault.is_some() {
            self.disk.log(&asked.call, &"failed");
            return Err(io_error(ffi::SQLITE_IOERR_SHMMAP));
        }
        lower.shm_map(request)
    }
}
