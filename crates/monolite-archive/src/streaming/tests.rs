//! Both ends of a connection, and what one that is not the other end can do.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::{TcpListener, TcpStream};
use std::thread;

use super::*;

const SECRET: &[u8] = b"sixteen bytes!!!";

fn hello() -> Hello {
    let at = WalPosition { generation: 3, offset: 4_152 };
    Hello { lineage: 7 << 100, replica: ReplicaId::from_bits(9), slot: 12, at: Some((2, at)) }
}

fn part() -> Message {
    let to = WalPosition { generation: 1, offset: 99 };
    let page = |pgno: u32| [&pgno.to_le_bytes()[..], &[pgno as u8; 512]].concat();
    let pages = [page(1), page(3)].concat();
    Message::Part(Part {
        to,
        generations: vec![(0, [2, 3]), (1, [4, 5])],
        bound: 6,
        commit: 3,
        page_bytes: 512,
        pages,
    })
}

fn messages() -> Vec<Message> {
    let at = WalPosition { generation: 1, offset: 99 };
    let sealed = Message::Sealed { txid: Txid::new(5).unwrap(), at };
    let refused = Message::Refused("no".into());
    vec![Message::Welcome { epoch: 4 }, part(), sealed, Message::Alive, Message::Behind, refused]
}

/// A primary with one secret, and what comes of a follower with another.
fn ends(of_primary: &[u8], of_follower: &[u8]) -> (Result<(Line, Hello)>, Result<Line>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let peer = Peer::new(&address, of_primary);
    let primary = thread::spawn(move || Line::accept(listener.accept().unwrap().0, &peer));
    let follower = Line::connect(&Peer::new(&address, of_follower), hello());
    (primary.join().unwrap(), follower)
}

fn received(line: &mut Line) -> Result<Message> {
    loop {
        if let Some(message) = line.receive(Wait::ATick)? {
            return Ok(message);
        }
    }
}

#[test]
fn what_is_said_arrives_once_and_in_order() {
    let (primary, follower) = ends(SECRET, SECRET);
    let ((mut primary, heard), mut follower) = (primary.unwrap(), follower.unwrap());
    assert_eq!(heard, hello());
    for message in messages() {
        primary.send(&message.encode()).unwrap();
        assert_eq!(received(&mut follower).unwrap(), message);
    }
    assert_eq!(follower.receive(Wait::Never).unwrap(), None);
    drop(primary);
    assert_eq!(received(&mut follower).unwrap_err().kind(), ErrorKind::Lost);
}

#[test]
fn neither_side_goes_on_with_another_secret() {
    let (primary, follower) = ends(SECRET, b"another secret!!");
    assert_eq!(primary.err().unwrap().kind(), ErrorKind::Denied);
    assert_eq!(received(&mut follower.unwrap()).unwrap_err().kind(), ErrorKind::Denied);
    assert!(Peer::new("127.0.0.1:1", b"fifteen bytes!!").check().is_err());
}

/// What a follower makes of a message whose bytes on the wire were changed.
fn changed(change: impl FnOnce(&mut Vec<u8>)) -> Result<Message> {
    let (primary, follower) = ends(SECRET, SECRET);
    let ((mut primary, _), mut follower) = (primary.unwrap(), follower.unwrap());
    let body = part().encode();
    let tag = primary.ours.next(&body).finalize().into_bytes();
    let mut bytes = [&(body.len() as u32).to_le_bytes()[..], &body, &tag].concat();
    change(&mut bytes);
    primary.tcp.write_all(&bytes).unwrap();
    drop(primary);
    received(&mut follower)
}

#[test]
fn message_that_was_changed_or_repeated_is_refused() {
    assert_eq!(changed(|_| {}).unwrap(), part());
    for _ in 0..200 {
        let error = changed(|bytes| {
            let at = fastrand::usize(..bytes.len());
            bytes[at] ^= 1 << fastrand::u8(..8);
        });
        error.unwrap_err();
    }
    changed(|bytes| bytes.truncate(40)).unwrap_err();
    let (primary, follower) = ends(SECRET, SECRET);
    let ((mut primary, _), mut follower) = (primary.unwrap(), follower.unwrap());
    primary.send(&Message::Alive.encode()).unwrap();
    primary.ours.number = 0;
    primary.send(&Message::Alive.encode()).unwrap();
    received(&mut follower).unwrap();
    assert_eq!(received(&mut follower).unwrap_err().kind(), ErrorKind::Denied);
}

#[test]
fn follower_that_has_not_proved_the_secret_takes_no_memory() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut tcp = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    tcp.write_all(&[&MAGIC[..], &[0; 16], &u32::MAX.to_le_bytes()].concat()).unwrap();
    let accepted = Line::accept(listener.accept().unwrap().0, &Peer::new("-", SECRET));
    assert_eq!(accepted.err().unwrap().kind(), ErrorKind::Corrupt);
}

#[test]
fn any_bytes_are_a_message_or_an_error() {
    for _ in 0..100_000 {
        let mut bytes = messages()[fastrand::usize(..6)].encode();
        match fastrand::u8(..3) {
            0 => bytes.truncate(fastrand::usize(..=bytes.len())),
            1 => bytes.extend((0..fastrand::usize(..9)).map(|_| fastrand::u8(..))),
            _ => {
                let at = fastrand::usize(..bytes.len());
                bytes[at] = fastrand::u8(..);
            }
        }
        if let Ok(message) = Message::decode(&bytes) {
            assert!(matches!(message, Message::Refused(_)) || message.encode() == bytes);
        }
        let _ = Hello::decode(&bytes);
    }
}
