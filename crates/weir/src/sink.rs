//! Where text goes whose reader may be slow, or gone for good: a pipe, a disk. A thread of its own writes it, and nobody waits
//! for that thread. What does not fit is lost, and counted.
//!
//! Does not know what the text says.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};

/// Text that waits at most. What strangers can make us say must not fill the memory.
const WAITING_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The end that text is put in.
#[derive(Debug)]
pub struct Sink {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    /// Something was put in, something was written, or it is over.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    pieces: VecDeque<(Arc<str>, u64)>,
    bytes: usize,
    /// Lines that did not fit or could not be written, and of which nothing was said yet.
    lost: u64,
    writing: bool,
    over: bool,
}

/// What a sink writes to, which may block.
pub trait Target: Send + 'static {
    /// Whole lines.
    fn write_lines(&mut self, text: &str) -> io::Result<()>;
}

impl Target for File {
    fn write_lines(&mut self, text: &str) -> io::Result<()> {
        write(self, text.as_bytes())
    }
}

impl Sink {
    pub fn start(target: impl Target) -> io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let theirs = shared.clone();
        thread::Builder::new().name("weir-log".to_owned()).spawn(move || theirs.write_all(target))?;
        Ok(Self { shared })
    }

    /// Puts whole lines in, so many, or counts them as lost.
    pub fn put(&self, text: &Arc<str>, lines: u64) {
        let mut queue = self.shared.lock();
        if queue.bytes + text.len() > WAITING_BYTES_MAX {
            queue.lost += lines;
            return;
        }
        queue.bytes += text.len();
        queue.pieces.push_back((text.clone(), lines));
        self.shared.changed.notify_all();
    }

    /// How many lines were lost, once there is room again to say so. Whoever asks says it.
    pub fn take_lost(&self) -> Option<u64> {
        let mut queue = self.shared.lock();
        let has_room = queue.bytes <= WAITING_BYTES_MAX / 2;
        (has_room && queue.lost > 0).then(|| std::mem::take(&mut queue.lost))
    }

    /// Waits until all is written, but not for long: answers whether it is.
    pub fn flush(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        let mut queue = self.shared.lock();
        while queue.writing || !queue.pieces.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            queue = self.shared.changed.wait_timeout(queue, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

/// The thread writes what it has and ends.
impl Drop for Sink {
    fn drop(&mut self) {
        self.shared.lock().over = true;
        self.shared.changed.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_all(&self, mut target: impl Target) {
        while let Some((text, lines)) = self.next() {
            let written = target.write_lines(&text);
            let mut queue = self.lock();
            queue.writing = false;
            queue.bytes -= text.len();
            if written.is_err() {
                queue.lost += lines;
            }
            self.changed.notify_all();
        }
    }

    fn next(&self) -> Option<(Arc<str>, u64)> {
        let mut queue = self.lock();
        loop {
            if let Some(piece) = queue.pieces.pop_front() {
                queue.writing = true;
                return Some(piece);
            }
            if queue.over {
                return None;
            }
            queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Whoever shares a pipe or terminal with us may have made it one that does not block.
fn write(file: &mut File, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                poll(&mut [PollFd::new(&file.as_fd(), PollFlags::OUT)], None)?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::fd::OwnedFd;

    #[test]
    fn nobody_waits_for_a_reader_that_does_not_read() {
        let (mut reader, writer) = io::pipe().unwrap();
        let sink = Sink::start(File::from(OwnedFd::from(writer))).unwrap();
        let text: Arc<str> = format!("{}\n", "x".repeat(1023)).into();
        let began = Instant::now();
        for _ in 0..3 * WAITING_BYTES_MAX / text.len() {
            sink.put(&text, 1);
        }
        assert!(!sink.flush(Duration::from_millis(50)));
        assert!(began.elapsed() < Duration::from_secs(10));
        assert_eq!(sink.take_lost(), None, "there is no room to say it");

        let reading = thread::spawn(move || {
            let mut bytes = Vec::new();
            reader.read_to_end(&mut bytes).unwrap();
            bytes.len()
        });
        assert!(sink.flush(Duration::from_secs(30)));
        let lost = usize::try_from(sink.take_lost().unwrap()).unwrap();
        assert_eq!(sink.take_lost(), None, "it is said once");
        drop(sink);
        assert_eq!(reading.join().unwrap() + lost * text.len(), 3 * WAITING_BYTES_MAX);
    }

    #[test]
    fn a_pipe_that_does_not_block_loses_nothing() {
        let (mut reader, writer) = io::pipe().unwrap();
        rustix::io::ioctl_fionbio(&writer, true).unwrap();
        let sink = Sink::start(File::from(OwnedFd::from(writer))).unwrap();
        let text: Arc<str> = "y".repeat(256 * 1024).into();
        sink.put(&text, 1);
        thread::sleep(Duration::from_millis(20));
        let mut bytes = vec![0; text.len()];
        reader.read_exact(&mut bytes).unwrap();
        assert!(sink.flush(Duration::from_secs(10)));
        assert_eq!(sink.take_lost(), None);
    }
}
