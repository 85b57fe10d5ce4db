//! Sends and receives lines, with descriptors, over the socket of an upgrade. Blocking. The length
//! of a line and the time of each wait are limited.

use std::io::{self, BufRead, BufReader, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::io::retry_on_intr;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use super::ANSWER_TIME;

/// Most descriptors that come with a line.
pub(super) const DESCRIPTORS: usize = 128;
/// Longest line in bytes. The longest lines have the heartbeats of all nodes.
const LINE: u64 = 16 << 20;

/// Explains an I/O error that came after a wait of `patience`.
pub(super) fn why(error: io::Error, patience: Duration) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => {
            let patience = patience.as_secs();
            io::Error::other(format!("the other process did not answer within {patience} s"))
        }
        io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe => {
            io::Error::other("the other process gave up: its log says why")
        }
        _ => error,
    }
}

pub(super) fn send(
    mut stream: &UnixStream,
    line: &str,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    stream.set_write_timeout(Some(ANSWER_TIME))?;
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut with = SendAncillaryBuffer::new(&mut room);
    let rights = SendAncillaryMessage::ScmRights(descriptors);
    // The space is rounded up, so `push` alone would accept more descriptors.
    if descriptors.len() > DESCRIPTORS || !(descriptors.is_empty() || with.push(rights)) {
        return Err(io::Error::other(format!("more than {DESCRIPTORS} descriptors")));
    }
    let line = format!("{line}\n");
    // The descriptors go with the first bytes.
    let sent = sendmsg(stream, &[IoSlice::new(line.as_bytes())], &mut with, SendFlags::empty())?;
    stream.write_all(line.as_bytes().get(sent..).unwrap_or_default())
}

/// Waits for a line, with descriptors. An error of kind `UnexpectedEof` means that the other
/// process has closed the connection. The other process must have sent only one line.
pub(super) fn receive(
    stream: &UnixStream,
    patience: Duration,
) -> io::Result<(String, Vec<OwnedFd>)> {
    stream.set_read_timeout(Some(patience))?;
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut with = RecvAncillaryBuffer::new(&mut room);
    let mut first = [0];
    let into = &mut [IoSliceMut::new(&mut first)];
    let came = retry_on_intr(|| recvmsg(stream, into, &mut with, RecvFlags::empty()))?.bytes;
    let mut descriptors = Vec::new();
    for message in with.drain() {
        if let RecvAncillaryMessage::ScmRights(came) = message {
            descriptors.extend(came);
        }
    }
    for descriptor in &descriptors {
        // Processes that this one starts do not inherit the descriptors.
        rustix::io::fcntl_setfd(descriptor, rustix::io::FdFlags::CLOEXEC)?;
    }
    let mut line = String::new();
    let first = first.get(..came).unwrap_or_default();
    BufReader::new(first.chain(stream)).take(LINE).read_line(&mut line)?;
    let line = line.strip_suffix('\n').ok_or(io::ErrorKind::UnexpectedEof)?;
    Ok((line.to_owned(), descriptors))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Seek, SeekFrom};
    use std::os::fd::AsFd;

    use super::*;

    const SOON: Duration = Duration::from_secs(30);

    #[test]
    fn lines_and_descriptors_arrive() {
        let (one, other) = UnixStream::pair().unwrap();
        let mut file = tempfile::tempfile().unwrap();
        write!(file, "canary").unwrap();
        send(&one, "two files", &[file.as_fd(), file.as_fd()]).unwrap();
        let (line, descriptors) = receive(&other, SOON).unwrap();
        assert_eq!((line.as_str(), descriptors.len()), ("two files", 2));
        let mut came = File::from(descriptors.into_iter().next().unwrap());
        let mut text = String::new();
        came.seek(SeekFrom::Start(0)).unwrap();
        came.read_to_string(&mut text).unwrap();
        assert_eq!(text, "canary");
        for line in ["none".to_owned(), "long ".repeat(10_000)] {
            send(&one, &line, &[]).unwrap();
            let (came, none) = receive(&other, SOON).unwrap();
            assert!(came == line && none.is_empty());
        }
        let many = vec![file.as_fd(); DESCRIPTORS + 1];
        assert!(send(&one, "too many", &many).is_err());
        drop(one);
        let failed = receive(&other, SOON).unwrap_err();
        assert_eq!(failed.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_wait_ends() {
        let (_silent, other) = UnixStream::pair().unwrap();
        let late = receive(&other, Duration::from_millis(10)).unwrap_err();
        assert_eq!(late.kind(), io::ErrorKind::WouldBlock);
    }
}
