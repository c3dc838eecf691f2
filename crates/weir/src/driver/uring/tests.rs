//! What a whole program hardly ever meets: quick sends and sends past the ring that go in part, to sockets with tiny buffers.

use std::io::{ErrorKind, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use io_uring::opcode;
use io_uring::types::Fixed;
use rustix::event::{EventfdFlags, eventfd};
use weir_core::{ConnId, Side};

use super::super::sockets::{Event, Sockets, Step};
use super::files::Descriptor;
use super::ring::{Operation, Tag};
use super::{Completed, PROMPT_COMPLETIONS_MAX, Uring, UringSocket};

const ID: ConnId = ConnId { side: Side::Client, slot: 3, generation: 7 };
const LEN: usize = 12_000;

/// One connection, whose socket takes some 4 kB at a time.
struct Pair {
    uring: Uring,
    socket: UringSocket,
    peer: UnixStream,
    _bell: OwnedFd,
}

fn pair() -> Option<Pair> {
    pair_with(|_| {})
}

fn pair_with(prepare: impl Fn(&mut Uring)) -> Option<Pair> {
    if let Err(error) = super::probe() {
        println!("skipped: {error}");
        return None;
    }
    let bell = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    let mut uring = Uring::new(bell.as_fd()).unwrap();
    prepare(&mut uring);
    let (ours, peer) = UnixStream::pair().unwrap();
    socket2::SockRef::from(&ours).set_send_buffer_size(4_096).unwrap();
    peer.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut socket = uring.adopt(ours.into());
    uring.begin(ID, &mut socket).unwrap();
    Some(Pair { uring, socket, peer, _bell: bell })
}

#[test]
fn a_socket_in_the_rings_table_works_and_comes_out() {
    let Some(mut pair) = pair_with(|uring| uring.files.use_always(1_000)) else { return };
    assert!(pair.uring.fd(&pair.socket).is_none(), "it has an ordinary descriptor");
    pair.send(0, LEN);
    pair.uring.flush(ID, &mut pair.socket, false);
    pair.expect(LEN);
    let fd = pair.come_out();
    rustix::io::write(&fd, b"still here").unwrap();
    let mut bytes = [0; 10];
    assert_eq!(pair.read(&mut bytes), 10);
    assert_eq!(&bytes, b"still here");
    drop(fd);
    assert_eq!(pair.read(&mut bytes), 0, "the table still holds the socket");
}

#[test]
fn a_table_is_full_before_its_last_slot() {
    let Some(mut pair) = pair_with(|uring| uring.files.use_always(87)) else { return };
    assert!(!pair.uring.is_full());
    let mut others = Vec::new();
    for slot in 4..70 {
        let (ours, peer) = UnixStream::pair().unwrap();
        let id = ConnId { slot, ..ID };
        let mut socket = pair.uring.adopt(ours.into());
        pair.uring.begin(id, &mut socket).unwrap();
        others.push((id, socket, peer));
    }
    assert!(pair.uring.is_full());
    assert!(others.iter().all(|(_, socket, _)| pair.uring.fd(socket).is_none()), "there was room for it");
}

fn pattern(start: usize, len: usize) -> Vec<u8> {
    (start..start + len).map(|place| (place.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

impl Pair {
    fn send(&mut self, start: usize, len: usize) {
        self.uring.send(ID, &mut self.socket, &[&pattern(start, len)], None);
    }

    /// Takes what has happened; the result of a quick send that failed.
    fn turn(&mut self, timeout: Duration) -> Option<i32> {
        let mut refused = None;
        self.uring.wait(Some(timeout)).unwrap();
        while let Some(event) = self.uring.next() {
            let Event::Connection(id, raw) = event else { continue };
            assert_eq!(id, ID);
            if let Completed::Refused(what) = &raw {
                refused = Some(what.result);
            }
            if let Step::Received(piece) = self.uring.advance(ID, &mut self.socket, raw) {
                self.uring.give_back(piece);
            }
        }
        refused
    }

    /// A turn that brought so many completions of no meaning. Before the first turn everything goes through the ring.
    fn turn_with(&mut self, completions: usize) {
        for _ in 0..completions {
            self.uring.ring.push(opcode::Nop::new().build(), Tag::other(Operation::CancelAccept, 0));
        }
        assert_eq!(self.turn(Duration::ZERO), None);
    }

    fn flush(&mut self) {
        self.uring.flush(ID, &mut self.socket, false);
    }

    /// What has arrived already.
    fn arrived(&mut self) -> usize {
        let count = rustix::io::ioctl_fionread(&self.peer).unwrap();
        usize::try_from(count).unwrap()
    }

    /// Takes the socket apart; another takes its place.
    fn come_out(&mut self) -> OwnedFd {
        while !self.uring.retire(ID, &mut self.socket) {
            self.turn(Duration::from_millis(20));
        }
        let (other, _) = UnixStream::pair().unwrap();
        let other = Uring::socket(Descriptor::Open(other.into()));
        self.uring.dismantle(std::mem::replace(&mut self.socket, other)).0.unwrap()
    }

    /// The kernel may interrupt this thread for the ring's sake.
    fn read(&mut self, bytes: &mut [u8]) -> usize {
        loop {
            match self.peer.read(bytes) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                result => return result.unwrap(),
            }
        }
    }

    fn expect(&mut self, len: usize) {
        let mut got = Vec::new();
        let mut bytes = [0; 4_000];
        while got.len() < len {
            self.turn(Duration::from_millis(20));
            let count = self.read(&mut bytes);
            got.extend_from_slice(&bytes[..count]);
        }
        self.turn(Duration::from_millis(20));
        assert!(got == pattern(0, len), "other bytes, or in another order");
        assert_eq!(self.uring.unsent(&self.socket), 0);
    }
}

#[test]
fn what_a_quick_send_leaves_is_sent_later() {
    let Some(mut pair) = pair() else { return };
    pair.send(0, LEN);
    pair.uring.flush(ID, &mut pair.socket, false);
    let went = pair.turn(Duration::ZERO);
    assert!(went.is_some_and(|went| went > 0 && went < LEN as i32), "{went:?} went, the socket is not small");
    assert!(pair.uring.unsent(&pair.socket) > 0);
    pair.send(LEN, 100);
    pair.expect(LEN + 100);
}

#[test]
fn what_is_certain_is_known_in_the_same_turn() {
    let Some(mut pair) = pair() else { return };
    pair.send(0, LEN);
    pair.uring.flush(ID, &mut pair.socket, false);
    assert_eq!(pair.uring.unsent(&pair.socket), 0, "nobody knows better yet");
    pair.uring.make_certain(ID, &mut pair.socket);
    assert!(pair.uring.unsent(&pair.socket) > 0);
    pair.uring.flush(ID, &mut pair.socket, true);
    pair.expect(LEN);
}

#[test]
fn a_second_flush_of_a_turn_goes_behind_the_first() {
    let Some(mut pair) = pair() else { return };
    pair.send(0, LEN);
    pair.uring.flush(ID, &mut pair.socket, false);
    pair.send(LEN, LEN);
    pair.uring.flush(ID, &mut pair.socket, false);
    pair.expect(2 * LEN);
}

#[test]
fn a_quick_send_to_nobody_breaks_the_connection() {
    let Some(mut pair) = pair() else { return };
    let (_, nobody) = UnixStream::pair().unwrap();
    drop(std::mem::replace(&mut pair.peer, nobody));
    pair.send(0, LEN);
    pair.uring.flush(ID, &mut pair.socket, false);
    assert_eq!(pair.turn(Duration::ZERO), Some(-libc::EPIPE));
    assert!(pair.uring.is_broken(&pair.socket));
}

#[test]
fn what_is_refused_of_a_second_send_is_the_seconds() {
    let Some(mut pair) = pair() else { return };
    pair.send(0, 100);
    pair.uring.flush(ID, &mut pair.socket, false);
    pair.send(100, LEN);
    pair.uring.flush(ID, &mut pair.socket, false);
    pair.expect(100 + LEN);
}

#[test]
fn a_small_turn_sends_at_once_and_a_large_one_through_the_ring() {
    let Some(mut pair) = pair() else { return };
    pair.turn_with(PROMPT_COMPLETIONS_MAX);
    pair.send(0, 100);
    pair.flush();
    assert_eq!(pair.arrived(), 100);
    pair.turn_with(PROMPT_COMPLETIONS_MAX + 1);
    pair.send(100, 100);
    pair.flush();
    assert_eq!(pair.arrived(), 100);
    pair.expect(200);
}

#[test]
fn what_a_send_past_the_ring_leaves_follows_through_it() {
    let Some(mut pair) = pair() else { return };
    pair.turn_with(0);
    pair.send(0, LEN);
    pair.flush();
    let unsent = pair.uring.unsent(&pair.socket);
    assert!(unsent > 0 && unsent < LEN, "{unsent} of {LEN} wait, the socket is not small");
    pair.send(LEN, 100);
    pair.flush();
    assert_eq!(pair.uring.unsent(&pair.socket), unsent + 100, "something went past what waits");
    pair.expect(LEN + 100);
    pair.send(0, 100);
    pair.flush();
    assert_eq!(pair.arrived(), 100, "nothing waits any more");
}

#[test]
fn a_send_past_the_ring_to_a_full_socket_waits_in_the_ring() {
    let Some(mut pair) = pair() else { return };
    pair.turn_with(0);
    let fd = pair.uring.fd(&pair.socket).unwrap();
    let mut before = 0;
    while let Ok(sent) = rustix::net::send(fd, &pattern(before, 1_000), rustix::net::SendFlags::DONTWAIT) {
        before += sent;
    }
    pair.send(before, LEN);
    pair.flush();
    assert_eq!(pair.uring.unsent(&pair.socket), LEN);
    pair.expect(before + LEN);
}

#[test]
fn a_send_past_the_ring_goes_behind_a_quick_one_that_was_refused() {
    let Some(mut pair) = pair() else { return };
    pair.send(0, LEN);
    pair.flush();
    assert!(pair.turn(Duration::ZERO).is_some());
    assert!(pair.uring.prompt);
    pair.send(LEN, LEN);
    pair.flush();
    pair.expect(2 * LEN);
}

#[test]
fn a_send_past_the_ring_to_nobody_breaks_the_connection() {
    let Some(mut pair) = pair() else { return };
    pair.turn_with(0);
    let (_, nobody) = UnixStream::pair().unwrap();
    drop(std::mem::replace(&mut pair.peer, nobody));
    pair.send(0, LEN);
    pair.flush();
    assert!(pair.uring.is_broken(&pair.socket));
    assert_eq!(pair.uring.unsent(&pair.socket), 0);
}

#[test]
fn a_socket_in_the_rings_table_sends_through_the_ring_in_small_turns_too() {
    let Some(mut pair) = pair_with(|uring| uring.files.use_always(1_000)) else { return };
    pair.turn_with(0);
    pair.send(0, 100);
    pair.flush();
    assert_eq!(pair.arrived(), 0);
    pair.expect(100);
}

/// More completions at once than the ring has room for: the kernel keeps the rest aside, the refusal among them.
#[test]
fn a_refusal_that_the_kernel_kept_aside_is_heard_in_time() {
    let Some(mut pair) = pair() else { return };
    for _ in 0..10_000 {
        pair.uring.ring.push(opcode::Nop::new().build(), Tag::other(Operation::CancelAccept, 0));
    }
    pair.send(0, LEN);
    pair.uring.flush(ID, &mut pair.socket, false);
    pair.expect(LEN);
}

/// It should not happen; if it does, a stream ends rather than having a hole.
#[test]
fn a_refusal_without_its_bytes_ends_the_connection() {
    let Some(mut pair) = pair() else { return };
    pair.send(0, 100);
    pair.uring.flush(ID, &mut pair.socket, false);
    pair.turn(Duration::ZERO);
    pair.send(100, 100);
    pair.uring.flush(ID, &mut pair.socket, false);
    pair.uring.quick.refuse(ID, 0, -libc::EAGAIN);
    pair.turn(Duration::ZERO);
    assert!(pair.uring.is_broken(&pair.socket));
    let mut bytes = [0; 300];
    assert_eq!(pair.read(&mut bytes), 200, "the second one went by itself");
    pair.turn(Duration::from_millis(20));
    assert_eq!(pair.read(&mut bytes), 0, "the peer hears nothing of the end");
}

#[test]
fn a_descriptor_that_comes_late_is_nobody_elses() {
    let Some(mut pair) = pair_with(|uring| uring.files.use_always(1_000)) else { return };
    let (ours, mut peer) = UnixStream::pair().unwrap();
    peer.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let other = ConnId { slot: 9, ..ID };
    let mut socket = pair.uring.adopt(ours.into());
    pair.uring.begin(other, &mut socket).unwrap();
    let Descriptor::Slot(slot) = socket.descriptor else { panic!("it is in no slot") };
    // Asked for before, and not harvested until now.
    let install = opcode::FixedFdInstall::new(Fixed(slot), 0).build();
    pair.uring.ring.push(install, Tag::other(Operation::Install, 77));
    let mut fd = std::fs::File::from(pair.come_out());
    std::io::Write::write_all(&mut fd, b"mine").unwrap();
    let mut bytes = [0; 10];
    assert_eq!(pair.read(&mut bytes), 4);
    while !pair.uring.retire(other, &mut socket) {
        pair.uring.wait(Some(Duration::from_millis(20))).unwrap();
        while let Some(event) = pair.uring.next() {
            let Event::Connection(id, raw) = event else { continue };
            if id == other && matches!(pair.uring.advance(id, &mut socket, raw), Step::Retired) {
                break;
            }
        }
    }
    drop(pair.uring.dismantle(socket));
    assert_eq!(peer.read(&mut bytes).unwrap(), 0, "somebody still has a descriptor of it");
}
