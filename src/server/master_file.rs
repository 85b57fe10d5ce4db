//! The file of a master key: read as what it has to be, so that whoever finds something else there is told what it is and what to do,
//! and written so that it is whole or not there.

use std::fs::{File, Metadata};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use log::warn;

use crate::secret::{Secret, SecretBytes};

/// Bytes that are read of the file: many times those of a key.
const MOST: u64 = 4_096;
/// What nobody else may do with it: put another key there. Who may read it is for the operator to see to: orchestrators open
/// what they mount, a volume to its group again and again and a secret to everybody in a container of one user's.
const TOO_OPEN: u32 = 0o002;
/// What is worth a warning: others read it.
const READABLE: u32 = 0o004;

/// The key in a file, if it is there; else what is wrong with it and how to mend it. Nothing of what it holds is told.
pub(super) fn read(path: &Path) -> Result<Option<SecretBytes>, String> {
    let name = path.display();
    let there = match std::fs::symlink_metadata(path) {
        Ok(there) => there,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(path, &error)),
    };
    // Looked at before it is opened: a pipe would be waited for.
    match std::fs::metadata(path) {
        Ok(file) => check(path, &file)?,
        Err(error) if there.is_symlink() && error.kind() == ErrorKind::NotFound => {
            return Err(format!(
                "{name} is a link to what is not there: mount or restore what it leads to, or take the link away"
            ));
        }
        Err(error) => return Err(unreadable(path, &error)),
    }
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(MOST).read_to_string(&mut text));
    let text = Secret::new(text);
    match read {
        Err(error) if error.kind() == ErrorKind::InvalidData => {
            Err(malformed(path, "what is there is no text"))
        }
        Err(error) => Err(unreadable(path, &error)),
        Ok(_) => decode(text.expose().trim())
            .map(Some)
            .ok_or_else(|| malformed(path, &shape(text.expose()))),
    }
}

/// 32 bytes in base64.
pub(super) fn decode(text: &str) -> Option<SecretBytes> {
    STANDARD.decode(text).ok()?.try_into().ok().map(SecretBytes::new)
}

fn check(path: &Path, file: &Metadata) -> Result<(), String> {
    let name = path.display();
    if !file.is_file() {
        let what = if file.is_dir() { "a directory" } else { "no file" };
        return Err(format!(
            "{name} is {what}, and has to be a file with 32 bytes in base64: take it away, and put the file there"
        ));
    }
    let mode = file.permissions().mode() & 0o777;
    if mode & TOO_OPEN != 0 {
        return Err(format!(
            "anybody may write {name} (its mode is {mode:o}): chmod 600 {name}, and see who may have read it"
        ));
    }
    if mode & READABLE != 0 {
        warn!(
            "anybody on this machine may read {name} (its mode is {mode:o}): chmod 600 it; of a mounted secret set the mode of the mount, \
             as `defaultMode: 0400`"
        );
    }
    Ok(())
}

fn unreadable(path: &Path, error: &io::Error) -> String {
    format!(
        "cannot read {}: {error}; it has to belong to the user that the gateway runs as",
        path.display()
    )
}

fn malformed(path: &Path, what: &str) -> String {
    format!(
        "{} does not hold 32 bytes in base64, on one line: {what}; put back what the store was last started with",
        path.display()
    )
}

/// What there is instead of a key, in words that tell nothing of it.
fn shape(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.trim().is_empty()).count();
    match (lines, STANDARD.decode(text.trim())) {
        (0, _) => "it is empty".to_owned(),
        (1, Ok(bytes)) => format!("it holds {} bytes", bytes.len()),
        (1, Err(_)) => "what it holds is no base64".to_owned(),
        (lines, _) => format!("it holds {lines} lines"),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn key(byte: u8) -> String {
        STANDARD.encode([byte; 32])
    }

    fn put(path: &Path, bytes: &[u8], mode: u32) {
        std::fs::write(path, bytes).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_key_is_read_as_editors_and_mounts_leave_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("master.key");
        assert!(read(&path).unwrap().is_none());
        for (text, mode) in [
            (key(1), 0o600),
            (format!("{}\n", key(1)), 0o400),
            (format!("\n {}\r\n", key(1)), 0o440),
            (key(1), 0o660),
            (key(1), 0o644),
        ] {
            put(&path, text.as_bytes(), mode);
            assert_eq!(read(&path).unwrap().unwrap().expose(), &[1; 32], "{mode:o}");
            std::fs::remove_file(&path).unwrap();
        }
        let secret = dir.path().join("mounted");
        put(&secret, key(2).as_bytes(), 0o600);
        symlink(&secret, &path).unwrap();
        assert_eq!(read(&path).unwrap().unwrap().expose(), &[2; 32]);
    }

    #[test]
    fn what_is_no_key_is_told_with_what_to_do_and_without_a_word_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("master.key");
        let (one, two) = (key(1), format!("{}\n{}\n", key(1), key(2)));
        let cases: [(&[u8], u32, &str); 10] = [
            (b"", 0o600, "it is empty"),
            (b" \n", 0o600, "it is empty"),
            (&one.as_bytes()[..20], 0o600, "it holds 15 bytes"),
            (&one.as_bytes()[..43], 0o600, "no base64"),
            (b"a passphrase of a person", 0o600, "no base64"),
            (two.as_bytes(), 0o600, "it holds 2 lines"),
            (&[0xff; 32], 0o600, "no text"),
            (&[b'A'; 5_000], 0o600, "it holds 3072 bytes"),
            (one.as_bytes(), 0o646, "its mode is 646): chmod 600"),
            (one.as_bytes(), 0o602, "its mode is 602): chmod 600"),
        ];
        for (bytes, mode, word) in cases {
            put(&path, bytes, mode);
            let told = read(&path).unwrap_err();
            assert!(told.contains(word) && told.contains("master.key"), "{word}: {told}");
            assert!(["put back", "chmod"].iter().any(|advice| told.contains(advice)), "{told}");
            for secret in [&key(1)[..20], "passphrase", "AAAA"] {
                assert!(!told.contains(secret), "{told}");
            }
            std::fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn what_is_no_file_is_neither_waited_for_nor_written_over() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("master.key");
        std::fs::create_dir(&path).unwrap();
        assert!(read(&path).unwrap_err().contains("is a directory"));
        std::fs::remove_dir(&path).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(&path).unwrap();
        assert!(read(&path).unwrap_err().contains("is no file"));
        std::fs::remove_file(&path).unwrap();
        symlink("/dev/zero", &path).unwrap();
        assert!(read(&path).unwrap_err().contains("is no file"));
        std::fs::remove_file(&path).unwrap();
        symlink(dir.path().join("not mounted"), &path).unwrap();
        assert!(read(&path).unwrap_err().contains("a link to what is not there"));
        std::fs::remove_file(&path).unwrap();
        symlink(&path, &path).unwrap();
        assert!(read(&path).unwrap_err().contains("cannot read"), "a link to itself");
        // Whoever is root reads everything: what cannot be read is below what is no directory.
        let below = dir.path().join("file").join("master.key");
        std::fs::write(dir.path().join("file"), "").unwrap();
        assert!(read(&below).unwrap_err().contains("it has to belong to the user"));
    }
}
