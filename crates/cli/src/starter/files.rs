//! The files of a new configuration.

use std::path::{Path, PathBuf};

use super::super::failure::{CommandFailure, Result};

/// The paths of the server and the routing document in a directory. An error without `force` if one
/// of them exists.
pub(crate) fn files(dir: &Path, force: bool) -> Result<[PathBuf; 2]> {
    let files = ["rerouter.yaml", "routing.yaml"].map(|name| dir.join(name));
    if let Some(file) = files.iter().find(|file| file.exists() && !force) {
        return Err(CommandFailure::Failed(format!(
            "{} is there already: --force replaces it, --dir writes elsewhere",
            file.display()
        )));
    }
    Ok(files)
}

/// Writes a document, and creates its directory.
pub(crate) fn write(file: &Path, text: &str) -> Result<()> {
    if let Some(dir) = file.parent() {
        std::fs::create_dir_all(dir).map_err(|error| failed(dir, &error))?;
    }
    std::fs::write(file, text).map_err(|error| failed(file, &error))
}

fn failed(path: &Path, error: &std::io::Error) -> CommandFailure {
    CommandFailure::Failed(format!("{}: {error}", path.display()))
}
