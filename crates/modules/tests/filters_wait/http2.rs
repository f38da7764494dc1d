//! A client of HTTP/2 with prior knowledge, for one connection.

use crate::server::Server;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

pub struct Http2 {
    stream: UnixStream,
    next_id: u32,
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;

impl Http2 {
    pub fn connect(server: &Server) -> Http2 {
        let mut client = Http2 { stream: server.connect().stream, next_id: 1 };
        client.stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
        client.send(SETTINGS, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff]);
        client.send(WINDOW_UPDATE, 0, 0, &[0x7f, 0, 0, 0]);
        client
    }

    fn send(&mut self, kind: u8, flags: u8, id: u32, payload: &[u8]) {
        let len = (payload.len() as u32).to_be_bytes();
        let mut frame = vec![len[1], len[2], len[3], kind, flags];
        frame.extend_from_slice(&id.to_be_bytes());
        frame.extend_from_slice(payload);
        self.stream.write_all(&frame).unwrap();
    }

    /// Begins a stream; its number.
    pub fn ask(&mut self, path: &str) -> u32 {
        let id = self.next_id;
        self.next_id += 2;
        let mut block = vec![0x82, 0x86, 0x01, 1, b'a', 0x04, path.len() as u8];
        block.extend_from_slice(path.as_bytes());
        self.send(HEADERS, END_STREAM | 4, id, &block);
        id
    }

    pub fn reset(&mut self, id: u32) {
        self.send(RST_STREAM, 0, id, &[0, 0, 0, 8]);
    }

    /// The body of the stream that is complete first, and its number.
    pub fn first(&mut self) -> (u32, Vec<u8>) {
        let mut bodies = std::collections::HashMap::<u32, Vec<u8>>::new();
        loop {
            let mut head = [0; 9];
            self.stream.read_exact(&mut head).expect("a frame comes in time");
            let len = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
            let id = u32::from_be_bytes(head[5..9].try_into().unwrap());
            let mut payload = vec![0; len];
            self.stream.read_exact(&mut payload).unwrap();
            match head[3] {
                DATA => bodies.entry(id).or_default().extend(payload),
                HEADERS => drop(bodies.insert(id, Vec::new())),
                _ => continue,
            }
            if head[4] & END_STREAM != 0 {
                return (id, bodies.remove(&id).unwrap());
            }
        }
    }
}
