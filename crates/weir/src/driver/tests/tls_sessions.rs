//! What becomes of TLS sessions once they stand: messages of any size, moves between workers, and how they end.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use weir_core::contract::{Endpoint, TlsRole};
use weir_core::settings::TlsMode;

use super::tls::{Files, accepting, accepts, client, client_connection, options, talks};
use super::*;

#[test]
fn sessions_move_between_workers() {
    both(|kind| {
        let files = Files::new();
        let running = accepts(kind, &files, Script { moves: true, ..Script::default() }, 2);
        let mut stream = client(&files, running.connect(), false, false);
        (0..10).for_each(|_| assert!(talks(&mut stream)));
        assert!(running.seen.lock().unwrap().moved > 5);
        drop(stream);
        running.wait("closed", |seen| seen.closed == seen.moved + 1);
        running.end();
    });
}

/// A client that has spoken TLS already; its next bytes are written as one.
fn records(stream: &mut rustls::StreamOwned<rustls::ClientConnection, TcpStream>, plain: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for plain in plain.chunks(1 << 14) {
        stream.conn.writer().write_all(plain).unwrap();
        while stream.conn.wants_write() {
            stream.conn.write_tls(&mut bytes).unwrap();
        }
    }
    bytes
}

/// More comes out of one receive than goes into one input, and the first part of it makes the connection move.
#[test]
fn sessions_that_move_take_along_all_that_was_received() {
    both(|kind| {
        let files = Files::new();
        let running = accepts(kind, &files, Script { moves: true, slow: true, ..Script::default() }, 2);
        let mut stream = client(&files, running.connect(), false, false);
        assert!(talks(&mut stream));
        let sent: Vec<u8> = (0..80_000u32).map(|n| (n * 7) as u8).collect();
        for round in 0..20 {
            // So that each input is the one that it moves with some time.
            for _ in 0..round % 4 {
                stream.write_all(b"x").unwrap();
                stream.read_exact(&mut [0]).unwrap();
            }
            // The rest of it comes while the first byte is dealt with, and with it the beginning of a record.
            let mut bytes = records(&mut stream, &sent[..1]);
            bytes.extend(records(&mut stream, &sent[1..]));
            let (first, rest) = bytes.split_at(16_000);
            stream.sock.write_all(first).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(1));
            stream.sock.write_all(rest).unwrap();
            let mut back = vec![0; sent.len()];
            stream.read_exact(&mut back).unwrap();
            assert!(back == sent, "round {round}");
        }
        running.end();
    });
}

#[test]
fn a_session_that_moves_takes_along_that_its_client_sends_no_more() {
    both(|kind| {
        let files = Files::new();
        let running = accepts(kind, &files, Script { moves: true, ..Script::default() }, 2);
        let mut stream = client(&files, running.connect(), false, false);
        for _ in 0..4 {
            stream.write_all(b"x").unwrap();
            stream.read_exact(&mut [0]).unwrap();
        }
        let mut bytes = records(&mut stream, b"last");
        stream.conn.send_close_notify();
        stream.conn.write_tls(&mut bytes).unwrap();
        stream.sock.write_all(&bytes).unwrap();
        let mut back = Vec::new();
        stream.read_to_end(&mut back).unwrap();
        assert_eq!((&*back, running.seen.lock().unwrap().moved), (&b"last"[..], 1));
        running.wait("closed", |seen| (seen.ended, seen.open) == (1, 0));
        running.end();
    });
}

/// Where the end of a server's connection is not the server's own word, what it was sent may not have come to it.
#[test]
fn a_server_that_ends_without_saying_so_within_tls_has_failed() {
    both(|kind| {
        let files = Files::new();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let script = Script {
            target: Some(Endpoint::Tcp { host: "127.0.0.1".into(), port: listener.local_addr().unwrap().port() }),
            server_tls: Some(TlsRole::Connect { host: "db.example".into(), direct: false }),
            ..Script::default()
        };
        let connect = ConnectOptions { mode: TlsMode::Require, ..ConnectOptions::default() };
        let running = run(kind, script, options(Tls::load(None, &connect).unwrap()));
        let chain = rustls::pki_types::CertificateDer::from_pem_file(files.path("server.crt")).unwrap();
        let key = rustls::pki_types::PrivateKeyDer::from_pem_file(files.path("server.key")).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![chain], key)
            .unwrap();
        let config = Arc::new(config);
        for (number, says_so) in [true, false].into_iter().enumerate() {
            let mut stream = running.connect();
            let accepted = listener.accept().unwrap().0;
            let mut server = rustls::StreamOwned::new(rustls::ServerConnection::new(config.clone()).unwrap(), accepted);
            stream.write_all(b"some").unwrap();
            server.read_exact(&mut [0; 4]).unwrap();
            if says_so {
                server.conn.send_close_notify();
                server.flush().unwrap();
            }
            drop(server);
            running.wait("closed", |seen| seen.closed == 2 * (number + 1) && seen.open == 0);
            assert_eq!(running.seen.lock().unwrap().failed, usize::from(!says_so));
        }
        running.end();
    });
}

/// TLS 1.2 has no way to another key.
#[test]
fn a_connection_ends_when_its_key_has_encrypted_as_much_as_it_may() {
    both(|kind| {
        let files = Files::new();
        let mut provider = rustls::crypto::aws_lc_rs::default_provider();
        provider.cipher_suites = provider
            .cipher_suites
            .iter()
            .filter_map(|suite| match suite {
                rustls::SupportedCipherSuite::Tls12(suite) => {
                    let rustls::crypto::CipherSuiteCommon { suite: name, hash_provider, .. } = suite.common;
                    let common =
                        rustls::crypto::CipherSuiteCommon { suite: name, hash_provider, confidentiality_limit: 9 };
                    let limited = rustls::Tls12CipherSuite {
                        common,
                        prf_provider: suite.prf_provider,
                        kx: suite.kx,
                        sign: suite.sign,
                        aead_alg: suite.aead_alg,
                    };
                    Some(rustls::SupportedCipherSuite::Tls12(Box::leak(Box::new(limited))))
                }
                _ => None,
            })
            .collect();
        let accept = files.accept(TlsMode::Require, false);
        let tls = Tls::load_with(Some(&accept), &ConnectOptions::default(), &Arc::new(provider)).unwrap();
        let running = run(kind, accepting(false), options(tls));
        let mut stream = client(&files, running.connect(), false, false);
        let answered = (0..20).take_while(|_| {
            stream.write_all(b"some").unwrap();
            let mut back = [0; 4];
            stream.read_exact(&mut back).is_ok() && back == *b"some"
        });
        let answered = answered.count();
        // The two spans of each answer, and the end of the handshake.
        assert!((5..10).contains(&answered), "{answered} answers");
        running.wait("closed", |seen| (seen.closed, seen.open) == (1, 0));
        let said = running.handle.events.recv_timeout(PATIENCE).unwrap();
        assert!(matches!(&said, DriverEvent::Log(line) if line.text.contains("as many records as it may")), "{said:?}");
        running.end();
    });
}

#[test]
fn a_client_that_sends_no_more_gets_its_answers() {
    both(|kind| {
        let files = Files::new();
        let running = accepts(kind, &files, Script { bite: Some(999), ..Script::default() }, 1);
        let mut stream = client(&files, running.connect(), false, false);
        let sent: Vec<u8> = (0..20_000u32).map(|n| (n * 7) as u8).collect();
        stream.write_all(&sent).unwrap();
        stream.conn.send_close_notify();
        stream.flush().unwrap();
        stream.sock.shutdown(std::net::Shutdown::Write).unwrap();
        let mut back = Vec::new();
        stream.read_to_end(&mut back).unwrap();
        assert!(back == sent, "{} of {} bytes", back.len(), sent.len());
        running.wait("closed", |seen| (seen.ended, seen.closed) == (1, 1));
        running.end();
    });
}

#[test]
fn messages_in_pieces_of_any_size() {
    let files = Files::new();
    let tls = Tls::load(Some(&files.accept(TlsMode::Require, true)), &ConnectOptions::default()).unwrap();
    for (piece, fragment) in [(1, None), (7, Some(64)), (100_000, Some(32)), (100_000, None)] {
        let mut client = client_connection(&files, true, true, fragment);
        let mut session = crate::driver::tls::Session::new(&tls, &TlsRole::Accept { direct: true }).unwrap();
        let (mut scratch, mut plain, mut cipher, mut is_ready) = (Vec::new(), Vec::new(), Vec::new(), false);
        let sent: Vec<u8> = (0..50_000_u32).map(|n| (n * 11) as u8).collect();
        client.writer().write_all(&sent).unwrap();
        for _ in 0..10 {
            let mut bytes = Vec::new();
            while client.wants_write() {
                client.write_tls(&mut bytes).unwrap();
            }
            for bytes in bytes.chunks(piece) {
                is_ready |= session.decrypt(bytes, &mut scratch, &mut plain).unwrap().ready.is_some();
            }
            session.take_outgoing(&mut cipher);
            let mut cipher = std::mem::take(&mut cipher);
            while !cipher.is_empty() {
                let taken = client.read_tls(&mut &cipher[..]).unwrap();
                cipher.drain(..taken);
                client.process_new_packets().unwrap();
            }
        }
        assert!(is_ready && plain == sent, "{piece} {fragment:?}");
        assert_eq!(session.held(), 0, "an idle session holds no bytes");

        session.encrypt(&[b"some", &sent, b"", b"more"], &mut scratch, &mut cipher).unwrap();
        session.say_goodbye(&mut cipher);
        let mut back = Vec::new();
        while !cipher.is_empty() {
            let taken = client.read_tls(&mut &cipher[..]).unwrap();
            cipher.drain(..taken);
            let state = client.process_new_packets().unwrap();
            let mut part = vec![0; state.plaintext_bytes_to_read()];
            client.reader().read_exact(&mut part).unwrap();
            back.extend(part);
            assert_eq!(state.peer_has_closed(), cipher.is_empty());
        }
        assert!(back == [b"some", &sent[..], b"more"].concat());
    }
}

#[test]
fn a_message_without_an_end_is_an_error() {
    let files = Files::new();
    let tls = Tls::load(Some(&files.accept(TlsMode::Require, false)), &ConnectOptions::default()).unwrap();
    let mut session = crate::driver::tls::Session::new(&tls, &TlsRole::Accept { direct: false }).unwrap();
    // A ClientHello of 65 535 bytes, in records of 16.
    let mut record = vec![22, 3, 1, 0, 16, 1, 0, 0xff, 0xff];
    record.resize(21, 0);
    let mut told = Ok(None);
    for _ in 0..10_000 {
        told = session.decrypt(&record, &mut Vec::new(), &mut Vec::new()).map(|progress| progress.ready);
        assert!(session.held() < 200_000);
        if told.is_err() {
            break;
        }
        (record[5], record[6], record[7], record[8]) = (0, 0, 0, 0);
    }
    assert!(told.unwrap_err().reason.contains("too long"));
    let mut alert = Vec::new();
    session.take_outgoing(&mut alert);
    session.say_goodbye(&mut alert);
    assert!(session.encrypt(&[b"x"], &mut Vec::new(), &mut alert).is_err());
    assert_eq!(session.held(), 0);
}
