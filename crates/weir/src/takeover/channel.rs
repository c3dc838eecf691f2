//! Messages between two processes over a Unix socket, with the descriptors that go along.
//!
//! A message is its length in four bytes, most significant first, and JSON: what one release adds to it another one reads over.
//! Descriptors come with a message's first byte (`SCM_RIGHTS`, unix(7)).

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};

use super::Message;

/// Descriptors that one message may bring (`SCM_MAX_FD`, include/net/scm.h of Linux).
const DESCRIPTORS_MAX: usize = 253;
/// No message is longer: a session's statements have up to 64 MiB.
const MESSAGE_BYTES_MAX: usize = 512 * 1024 * 1024;

/// Where another message was due.
pub fn unasked() -> io::Error {
    io::Error::other("it says something else than was asked")
}

/// This process's end.
#[derive(Debug)]
pub struct Channel(UnixStream);

impl Channel {
    pub fn new(stream: UnixStream) -> Self {
        Self(stream)
    }

    /// How long the other one may take to say or to read something; `None`: as long as it lives.
    pub fn patience(&self, patience: Option<Duration>) -> io::Result<()> {
        self.0.set_read_timeout(patience)?;
        self.0.set_write_timeout(patience)
    }

    /// Who is at the other end: only root, and the user that this process runs as, may have what it has.
    pub fn is_of_our_user(&self) -> bool {
        let peer = getsockopt(&self.0, PeerCredentials).map(|peer| peer.uid());
        peer.is_ok_and(|uid| uid == 0 || uid == rustix::process::geteuid().as_raw())
    }

    pub fn send(&self, message: &Message, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let body = serde_json::to_vec(message)?;
        let len = u32::try_from(body.len()).ok().filter(|len| *len as usize <= MESSAGE_BYTES_MAX);
        let head = len.ok_or_else(|| io::Error::other("the message is too long"))?.to_be_bytes();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(io::Error::other("there are too many sockets to hand over"));
        }
        // In one piece, as far as the socket takes it: of a short one the other end has all or nothing.
        let pieces = [IoSlice::new(&head), IoSlice::new(&body)];
        let sent = rustix::io::retry_on_intr(|| sendmsg(&self.0, &pieces, &mut ancillary, SendFlags::NOSIGNAL))?;
        (&self.0).write_all(head.get(sent..).unwrap_or_default())?;
        (&self.0).write_all(&body[sent.saturating_sub(head.len())..])
    }

    /// The other end can say nothing more from now on; what it has said is still there.
    pub fn stop_hearing(&self) -> io::Result<()> {
        self.0.shutdown(Shutdown::Read)
    }

    /// What is due now; that the other process has ended is an error.
    pub fn answer(&self) -> io::Result<(Message, Vec<OwnedFd>)> {
        self.receive()?.ok_or_else(|| io::Error::other("it ended"))
    }

    /// `None`: the other process has ended.
    pub fn receive(&self) -> io::Result<Option<(Message, Vec<OwnedFd>)>> {
        let mut head = [0; 4];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let received = rustix::io::retry_on_intr(|| {
            recvmsg(&self.0, &mut [IoSliceMut::new(&mut head)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)
        })?;
        if received.bytes == 0 {
            return Ok(None);
        }
        let descriptors = ancillary.drain().flat_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => descriptors.collect(),
            _ => Vec::new(),
        });
        let descriptors = descriptors.collect();
        (&self.0).read_exact(&mut head[received.bytes..])?;
        let len = u32::from_be_bytes(head) as usize;
        if len > MESSAGE_BYTES_MAX {
            return Err(io::Error::other("a message of it is too long"));
        }
        let mut body = Vec::new();
        (&self.0).take(len as u64).read_to_end(&mut body)?;
        if body.len() < len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(Some((serde_json::from_slice(&body)?, descriptors)))
    }
}

impl From<Channel> for OwnedFd {
    fn from(channel: Channel) -> Self {
        channel.0.into()
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    fn pair() -> (Channel, Channel) {
        let (here, there) = UnixStream::pair().unwrap();
        (Channel::new(here), Channel::new(there))
    }

    fn reason(message: Option<(Message, Vec<OwnedFd>)>) -> (String, Vec<OwnedFd>) {
        let Some((Message::Refused { reason }, descriptors)) = message else { panic!("{message:?}") };
        (reason, descriptors)
    }

    #[test]
    fn descriptors_come_with_their_own_message() {
        let (here, there) = pair();
        let (mut reader, writer) = io::pipe().unwrap();
        for (reason, descriptors) in [("none", &[][..]), ("a pipe", &[writer.as_fd()]), ("none again", &[])] {
            here.send(&Message::Refused { reason: reason.to_owned() }, descriptors).unwrap();
        }
        drop((here, writer));
        assert_eq!(reason(there.receive().unwrap()).1.len(), 0);
        let (said, mut descriptors) = reason(there.receive().unwrap());
        assert_eq!((said.as_str(), descriptors.len()), ("a pipe", 1));
        assert_eq!(reason(there.receive().unwrap()).0, "none again");
        assert!(there.receive().unwrap().is_none());
        std::fs::File::from(descriptors.remove(0)).write_all(b"through it").unwrap();
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "through it");
    }

    #[test]
    fn what_is_cut_off_or_no_message_is_an_error() {
        for bytes in [&b"\0\0"[..], b"\0\0\0\x08{}", b"\0\0\0\x02{}", b"\xff\xff\xff\xff{}"] {
            let (here, there) = pair();
            (&here.0).write_all(bytes).unwrap();
            drop(here);
            assert!(there.receive().is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn who_says_nothing_is_not_waited_for() {
        let (_here, there) = pair();
        there.patience(Some(Duration::from_millis(20))).unwrap();
        assert!(there.receive().is_err());
    }
}
