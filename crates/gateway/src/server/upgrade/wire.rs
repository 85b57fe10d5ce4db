//! Lines, and descriptors, over the socket of an upgrade. Blocking; a line is bounded in length,
//! and each wait in time.

use std::io::{self, BufRead, BufReader, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recv, recvmsg, sendmsg,
};

/// Descriptors that come with a line at most.
const DESCRIPTORS: usize = 128;
/// Bytes of a line at most. The longest has the heartbeats of all nodes.
const LINE: u64 = 16 << 20;

/// Whether the process at the other end, which says nothing more, has yet to end.
pub(super) fn is_open(stream: &UnixStream) -> bool {
    let nothing = recv(stream, &mut [0][..], RecvFlags::PEEK | RecvFlags::DONTWAIT);
    nothing == Err(Errno::AGAIN)
}

/// A connection to the other process.
pub(super) struct Line(BufReader<UnixStream>);

impl Line {
    pub(super) fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(false)?;
        Ok(Line(BufReader::new(stream)))
    }

    fn stream(&self) -> &UnixStream {
        self.0.get_ref()
    }

    pub(super) fn into_stream(self) -> UnixStream {
        self.0.into_inner()
    }

    pub(super) fn send(&self, line: &str) -> io::Result<()> {
        self.stream().set_write_timeout(Some(super::ANSWER_TIME))?;
        self.stream().write_all(format!("{line}\n").as_bytes())
    }

    /// Sends a line with descriptors, if there are any.
    pub(super) fn send_with(&self, line: &str, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        if descriptors.is_empty() {
            return self.send(line);
        }
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut with = SendAncillaryBuffer::new(&mut room);
        // The room is rounded up.
        let fit = descriptors.len() <= DESCRIPTORS;
        if !(fit && with.push(SendAncillaryMessage::ScmRights(descriptors))) {
            return Err(io::Error::other(format!("more than {DESCRIPTORS} descriptors")));
        }
        // They come with the first byte.
        let (first, rest) = line.split_at_checked(1).unwrap_or((line, ""));
        let first = [IoSlice::new(first.as_bytes())];
        sendmsg(self.stream(), &first, &mut with, SendFlags::empty())?;
        self.send(rest)
    }

    /// Waits for a line. An error of kind `UnexpectedEof`: the other process has left.
    pub(super) fn receive(&mut self, patience: Duration) -> io::Result<String> {
        self.stream().set_read_timeout(Some(patience))?;
        let mut line = String::new();
        self.0.by_ref().take(LINE).read_line(&mut line)?;
        line.strip_suffix('\n').map(str::to_owned).ok_or(io::ErrorKind::UnexpectedEof.into())
    }

    /// Waits for a line with descriptors. Nothing may have been received that was not read.
    pub(super) fn receive_with(
        &mut self,
        patience: Duration,
    ) -> io::Result<(String, Vec<OwnedFd>)> {
        self.stream().set_read_timeout(Some(patience))?;
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut with = RecvAncillaryBuffer::new(&mut room);
        let mut first = [0];
        let into = &mut [IoSliceMut::new(&mut first)];
        let stream = self.stream();
        let receive = || recvmsg(stream, into, &mut with, RecvFlags::empty());
        if retry_on_intr(receive)?.bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut descriptors = Vec::new();
        for message in with.drain() {
            if let RecvAncillaryMessage::ScmRights(came) = message {
                descriptors.extend(came);
            }
        }
        for descriptor in &descriptors {
            // Nothing that this process starts has them.
            rustix::io::fcntl_setfd(descriptor, rustix::io::FdFlags::CLOEXEC)?;
        }
        let rest = self.receive(patience)?;
        Ok((format!("{}{rest}", char::from(first[0])), descriptors))
    }
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
        let (one, mut other) = (Line::new(one).unwrap(), Line::new(other).unwrap());
        let mut file = tempfile::tempfile().unwrap();
        write!(file, "canary").unwrap();
        one.send("hello").unwrap();
        assert_eq!(other.receive(SOON).unwrap(), "hello");
        one.send_with("two files", &[file.as_fd(), file.as_fd()]).unwrap();
        let (line, descriptors) = other.receive_with(SOON).unwrap();
        assert_eq!((line.as_str(), descriptors.len()), ("two files", 2));
        let mut came = File::from(descriptors.into_iter().next().unwrap());
        let mut text = String::new();
        came.seek(SeekFrom::Start(0)).unwrap();
        came.read_to_string(&mut text).unwrap();
        assert_eq!(text, "canary");
        one.send_with("none", &[]).unwrap();
        let (line, none) = other.receive_with(SOON).unwrap();
        assert!(line == "none" && none.is_empty());
        let many = vec![file.as_fd(); DESCRIPTORS + 1];
        assert!(one.send_with("too many", &many).is_err());
        drop(one);
        for failed in [other.receive(SOON).map(drop), other.receive_with(SOON).map(drop)] {
            assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        }
    }

    #[test]
    fn the_end_of_a_third_process_is_seen_by_whoever_has_the_connection_to_it() {
        let (third, connection) = UnixStream::pair().unwrap();
        let (one, other) = UnixStream::pair().unwrap();
        let (one, mut other) = (Line::new(one).unwrap(), Line::new(other).unwrap());
        one.send_with("one", &[connection.as_fd()]).unwrap();
        let (_, descriptors) = other.receive_with(SOON).unwrap();
        drop((one, connection));
        let passed = UnixStream::from(descriptors.into_iter().next().unwrap());
        assert!(is_open(&passed));
        drop(third);
        assert!(!is_open(&passed));
    }

    #[test]
    fn a_wait_ends() {
        let (_silent, other) = UnixStream::pair().unwrap();
        let mut other = Line::new(other).unwrap();
        let late = other.receive(Duration::from_millis(10)).unwrap_err();
        assert_eq!(late.kind(), io::ErrorKind::WouldBlock);
    }
}
