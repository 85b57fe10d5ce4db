//! Reads and writes the file of a master key. Errors tell what is wrong and how to mend it, and
//! nothing about the content.

use std::fs::{File, Metadata};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use log::warn;

use rerouter_base::secret::{Secret, SecretBytes};

/// Most bytes read: many times the length of a key.
const MOST: u64 = 4_096;
/// Mode bits that are refused, because others could replace the key. Who may read the key is left
/// to the operator, since orchestrators let groups, or everybody in a container, read mounted
/// files.
const TOO_OPEN: u32 = 0o002;
/// Mode bits that cause a warning, because others can read the key.
const READABLE: u32 = 0o004;

/// `None` if there is no file. The error tells what is wrong and how to mend it.
pub(super) fn read(path: &Path) -> Result<Option<SecretBytes>, String> {
    let name = path.display();
    let there = match std::fs::symlink_metadata(path) {
        Ok(there) => there,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(path, &error)),
    };
    // Checked before opening: to open a pipe would wait.
    match std::fs::metadata(path) {
        Ok(file) => check(path, &file)?,
        Err(error) if there.is_symlink() && error.kind() == ErrorKind::NotFound => {
            return Err(format!(
                "{name} is a dangling link: mount or restore its target, or remove the link"
            ));
        }
        Err(error) => return Err(unreadable(path, &error)),
    }
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(MOST).read_to_string(&mut text));
    let text = Secret::new(text);
    match read {
        Err(error) if error.kind() == ErrorKind::InvalidData => {
            Err(malformed(path, "it is not text"))
        }
        Err(error) => Err(unreadable(path, &error)),
        Ok(_) => decode(text.expose().trim())
            .map(Some)
            .ok_or_else(|| malformed(path, &shape(text.expose()))),
    }
}

/// Decodes a key: 32 bytes in base64.
pub(super) fn decode(text: &str) -> Option<SecretBytes> {
    STANDARD.decode(text).ok()?.try_into().ok().map(SecretBytes::new)
}

fn check(path: &Path, file: &Metadata) -> Result<(), String> {
    let name = path.display();
    if !file.is_file() {
        let what = if file.is_dir() { "a directory" } else { "not a regular file" };
        return Err(format!("{name} is {what}: put a file with 32 bytes in base64 in its place"));
    }
    let mode = file.permissions().mode() & 0o777;
    if mode & TOO_OPEN != 0 {
        return Err(format!(
            "anybody may write to {name} (its mode is {mode:o}): chmod 600 {name}, \
             and find out who may have read it"
        ));
    }
    if mode & READABLE != 0 {
        warn!(
            "anybody on this machine may read {name} (its mode is {mode:o}): chmod 600 it; \
             for a mounted secret set the mode of the mount, as `defaultMode: 0400`"
        );
    }
    Ok(())
}

fn unreadable(path: &Path, error: &io::Error) -> String {
    format!(
        "cannot read {}: {error}; it must belong to the user that the gateway runs as",
        path.display()
    )
}

fn malformed(path: &Path, what: &str) -> String {
    format!(
        "{} does not hold 32 bytes in base64 on one line: {what}; \
         restore the one that the store was last started with",
        path.display()
    )
}

/// Describes a file that holds no key, without its content.
fn shape(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.trim().is_empty()).count();
    match (lines, STANDARD.decode(text.trim())) {
        (0, _) => "it is empty".to_owned(),
        (1, Ok(bytes)) => format!("it holds {} bytes", bytes.len()),
        (1, Err(_)) => "it is not base64".to_owned(),
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
    fn a_refusal_says_what_to_do_and_nothing_of_the_content() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("master.key");
        let (one, two) = (key(1), format!("{}\n{}\n", key(1), key(2)));
        let cases: [(&[u8], u32, &str); 10] = [
            (b"", 0o600, "it is empty"),
            (b" \n", 0o600, "it is empty"),
            (&one.as_bytes()[..20], 0o600, "it holds 15 bytes"),
            (&one.as_bytes()[..43], 0o600, "not base64"),
            (b"a passphrase of a person", 0o600, "not base64"),
            (two.as_bytes(), 0o600, "it holds 2 lines"),
            (&[0xff; 32], 0o600, "not text"),
            (&[b'A'; 5_000], 0o600, "it holds 3072 bytes"),
            (one.as_bytes(), 0o646, "its mode is 646): chmod 600"),
            (one.as_bytes(), 0o602, "its mode is 602): chmod 600"),
        ];
        for (bytes, mode, word) in cases {
            put(&path, bytes, mode);
            let told = read(&path).unwrap_err();
            assert!(told.contains(word) && told.contains("master.key"), "{word}: {told}");
            assert!(["restore", "chmod"].iter().any(|advice| told.contains(advice)), "{told}");
            for secret in [&key(1)[..20], "passphrase", "AAAA"] {
                assert!(!told.contains(secret), "{told}");
            }
            std::fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn anything_but_a_file_is_neither_waited_for_nor_written_over() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("master.key");
        std::fs::create_dir(&path).unwrap();
        assert!(read(&path).unwrap_err().contains("is a directory"));
        std::fs::remove_dir(&path).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(&path).unwrap();
        assert!(read(&path).unwrap_err().contains("is not a regular file"));
        std::fs::remove_file(&path).unwrap();
        symlink("/dev/zero", &path).unwrap();
        assert!(read(&path).unwrap_err().contains("is not a regular file"));
        std::fs::remove_file(&path).unwrap();
        symlink(dir.path().join("not mounted"), &path).unwrap();
        assert!(read(&path).unwrap_err().contains("a dangling link"));
        std::fs::remove_file(&path).unwrap();
        symlink(&path, &path).unwrap();
        assert!(read(&path).unwrap_err().contains("cannot read"), "a link to itself");
        // Tests may run as root, who can read every file. Nobody can read a path below a plain
        // file.
        let below = dir.path().join("file").join("master.key");
        std::fs::write(dir.path().join("file"), "").unwrap();
        assert!(read(&below).unwrap_err().contains("it must belong to the user"));
    }
}
