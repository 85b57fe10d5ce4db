//! The names by which gateways that share a store know a data directory and the gateway that uses
//! it.

use std::io::ErrorKind::NotFound;

use super::{DataDir, Result, StoreError};
use rerouter_base::atomic_file;
use rerouter_base::id::{GatewayId, Random};

/// The file in the data directory with [`DirectoryNames`], one name per line.
pub const INSTANCE: &str = "gateway.id";

/// The names in a data directory, each the id of a gateway.
pub(super) struct DirectoryNames {
    /// The name of this gateway among those that share its store. It is the same after each start,
    /// as the lock on the directory shows that the previous process has ended. After an upgrade the
    /// previous process may still run; then this process gets another name.
    pub(super) instance: String,
    /// The name of the directory: the name of its first instance. It never changes.
    pub(super) directory: String,
}

impl DirectoryNames {
    /// Reads the file, or makes it. Blocking.
    pub(super) fn of(dir: &DataDir) -> Result<Self> {
        let path = dir.path().join(INSTANCE);
        let directory = match std::fs::read_to_string(&path) {
            Ok(found) => {
                let mut names = found.lines().map(str::to_owned);
                let instance = names.next().unwrap_or_default();
                let directory = names.next().unwrap_or_else(|| instance.clone());
                if [&instance, &directory].iter().any(|name| GatewayId::parse(name).is_none()) {
                    return Err(StoreError::Damaged(path.display().to_string()));
                }
                if !dir.predecessor().runs() {
                    return Ok(DirectoryNames { instance, directory });
                }
                Some(directory)
            }
            // The keys and segments of the running gateway would not be those of this store.
            Err(error) if error.kind() == NotFound && dir.predecessor().runs() => {
                let why =
                    "the running gateway has its store in SQLite: stop it, then start this one";
                return Err(StoreError::unavailable(why));
            }
            Err(error) if error.kind() == NotFound => None,
            Err(error) => return Err(error.into()),
        };
        let instance = GatewayId::new(jiff::Timestamp::now(), &Random::System).to_string();
        let directory = directory.unwrap_or_else(|| instance.clone());
        atomic_file::write(&path, format!("{instance}\n{directory}\n").as_bytes())?;
        Ok(DirectoryNames { instance, directory })
    }
}
