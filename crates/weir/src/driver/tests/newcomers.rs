//! Clients that are not in yet have a share of each turn, and lose nothing by waiting for it.

use std::io::{Read, Write};
use std::thread;

use super::*;

fn bytes_of(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (number * 31 + at * 7) as u8).collect()
}

/// More of them than have a share of one turn, and more bytes than are held.
#[test]
fn a_crowd_gets_its_own_bytes_back() {
    both(|kind| {
        let running = run(kind, Script { never_in: true, ..Script::default() }, Options::default());
        let mut streams: Vec<_> = (0..300).map(|_| running.connect()).collect();
        for round in 1..4 {
            for (number, stream) in streams.iter_mut().enumerate() {
                stream.write_all(&bytes_of(number, round * 9000)).unwrap();
            }
            for (number, stream) in streams.iter_mut().enumerate() {
                let mut back = vec![0; round * 9000];
                stream.read_exact(&mut back).unwrap();
                assert!(back == bytes_of(number, back.len()), "client {number}, round {round}");
            }
        }
        running.end();
    });
}

/// As those do who ask for a cancel.
#[test]
fn what_was_said_before_leaving_is_heard() {
    both(|kind| {
        let running = run(kind, Script { never_in: true, ..Script::default() }, Options::default());
        let mut streams: Vec<_> = (0..200).map(|_| running.connect()).collect();
        streams.iter_mut().for_each(|stream| stream.write_all(b"sixteen bytes...").unwrap());
        drop(streams);
        running.wait("all heard", |seen| seen.taken == 200 * 16);
        running.end();
    });
}

#[test]
fn they_move_between_workers_while_their_bytes_wait() {
    both(|kind| {
        let options = Options { workers: 3, ..Options::default() };
        let running = run(kind, Script { never_in: true, moves: true, ..Script::default() }, options);
        let clients: Vec<_> = (0..20)
            .map(|number| {
                let mut stream = running.connect();
                thread::spawn(move || {
                    for round in 0..40 {
                        let sent = bytes_of(number + round, 1 + round * 500);
                        stream.write_all(&sent).unwrap();
                        let mut back = vec![0; sent.len()];
                        stream.read_exact(&mut back).unwrap();
                        assert!(back == sent, "client {number}, round {round}");
                    }
                })
            })
            .collect();
        clients.into_iter().for_each(|client| client.join().unwrap());
        assert!(running.seen.lock().unwrap().moved > 20);
        running.end();
    });
}

/// They do not wait for an answer, so that bytes come at every moment of a move. On a slow machine many come at once, and few
/// moves are made of them: rounds follow until there were enough.
#[test]
fn what_comes_while_they_leave_goes_with_them() {
    both(|kind| {
        let options = Options { workers: 3, ..Options::default() };
        let running = run(kind, Script { never_in: true, moves: true, ..Script::default() }, options);
        for round in 0.. {
            assert!(round < 50, "too few moves");
            let clients: Vec<_> = (0..50).map(|number| speak_and_hear(running.connect(), number + round)).collect();
            clients.into_iter().for_each(|client| client.join().unwrap());
            if running.seen.lock().unwrap().moved > 20 {
                break;
            }
        }
        running.end();
    });
}

fn speak_and_hear(mut stream: TcpStream, number: usize) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        let sent = bytes_of(number, 10_000);
        let mut writer = stream.try_clone().unwrap();
        let spoken = sent.clone();
        let speaks = thread::spawn(move || {
            for chunk in spoken.chunks(50) {
                writer.write_all(chunk).unwrap();
                thread::sleep(Duration::from_micros(200));
            }
        });
        let mut back = vec![0; sent.len()];
        stream.read_exact(&mut back).unwrap();
        assert!(back == sent, "client {number}");
        speaks.join().unwrap();
    })
}
