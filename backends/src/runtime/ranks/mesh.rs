//! Ranks that are connected by TCP, each with every other.
//!
//! A thread for each connection reads what comes, so that nobody waits to be read: two ranks may send to each other at
//! one time. Another thread says every few seconds that this rank is there. A rank is lost when its connection
//! ends, or when nothing has come from it for [`SILENCE`](super::SILENCE).

use super::environment::RankEnvironment;
use super::frame::{FrameHeader, FrameKind};
use super::rendezvous::meet;
use super::{Communicator, SILENCE, lost};
use adfuse_ir::kernel::ExchangeKind;
use adfuse_ir::{At, Diagnostic, Kind};
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How often a rank says that it is there.
const PULSE: Duration = Duration::from_secs(3);

/// What has come from a rank, and whether it is there.
#[derive(Debug)]
struct Inbox {
    /// Parts of exchanges that nobody has taken yet, with their numbers.
    parts: VecDeque<(u64, Vec<u8>)>,
    heard: Instant,
    /// Why it is gone.
    gone: Option<String>,
}

/// Another rank.
#[derive(Debug)]
struct Peer {
    rank: u32,
    /// Frames are written whole, by one thread at a time.
    writer: Mutex<TcpStream>,
    inbox: Mutex<Inbox>,
    came: Condvar,
}

/// The connections of this rank.
#[derive(Debug)]
struct Links {
    rank: u32,
    peers: Vec<Arc<Peer>>,
    /// Set when this rank leaves.
    over: Mutex<bool>,
    ended: Condvar,
}

/// A communicator over TCP, for tensors in host memory.
#[derive(Debug)]
pub struct TcpMesh {
    links: Arc<Links>,
    ranks: u32,
    /// The number of the next exchange; exchanges come one after the other.
    next: Mutex<u64>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl TcpMesh {
    /// Connects with all other ranks; waits for those that are not there yet.
    ///
    /// # Errors
    /// [`Kind::LostRank`] where they do not come together in time; [`Kind::Usage`] for ranks that do not fit together.
    pub fn connect(environment: &RankEnvironment) -> Result<TcpMesh, Diagnostic> {
        let mut peers = Vec::new();
        for (rank, stream) in meet(environment)?.into_iter().enumerate() {
            let Some(stream) = stream else { continue };
            let inbox = Inbox { parts: VecDeque::new(), heard: Instant::now(), gone: None };
            let reader = stream.try_clone();
            let reader = reader.map_err(|e| lost(format!("cannot read from rank {rank}: {e}")))?;
            let peer = Arc::new(Peer {
                rank: rank as u32,
                writer: Mutex::new(stream),
                inbox: Mutex::new(inbox),
                came: Condvar::new(),
            });
            peers.push((peer, reader));
        }
        let all = peers.iter().map(|(peer, _)| Arc::clone(peer)).collect();
        let (over, ended) = (Mutex::new(false), Condvar::new());
        let links = Arc::new(Links { rank: environment.rank, peers: all, over, ended });
        let started = |e: io::Error| lost(format!("cannot start a thread: {e}"));
        for (peer, reader) in peers {
            let name = format!("rank-{}", peer.rank);
            thread::Builder::new()
                .name(name)
                .spawn(move || peer.listen(reader))
                .map_err(started)?;
        }
        let pulse = Arc::clone(&links);
        let name = "rank-pulse".to_string();
        thread::Builder::new().name(name).spawn(move || pulse.pulse()).map_err(started)?;
        Ok(TcpMesh { links, ranks: environment.ranks, next: Mutex::new(0) })
    }
}

impl Drop for TcpMesh {
    fn drop(&mut self) {
        *lock(&self.links.over) = true;
        self.links.ended.notify_all();
        let leave = FrameHeader { kind: FrameKind::Leave, number: 0, bytes: 0 };
        for peer in &self.links.peers {
            // One that is gone is not told.
            let stream = &mut *lock(&peer.writer);
            let _ = leave.write(stream).and_then(|()| stream.shutdown(Shutdown::Write));
        }
    }
}

impl Links {
    /// Says that this rank is there until it leaves, and notices who is silent.
    fn pulse(&self) {
        let alive = FrameHeader { kind: FrameKind::Alive, number: 0, bytes: 0 };
        let mut over = lock(&self.over);
        loop {
            let waited = self.ended.wait_timeout(over, PULSE);
            over = waited.unwrap_or_else(PoisonError::into_inner).0;
            if *over {
                break;
            }
            // Who leaves does not wait for what is written here.
            drop(over);
            for peer in &self.peers {
                // A writer that is busy says that this rank is there.
                if let Ok(mut writer) = peer.writer.try_lock() {
                    let _ = alive.write(&mut *writer);
                }
                let mut inbox = lock(&peer.inbox);
                if inbox.heard.elapsed() > SILENCE {
                    let m = format!("nothing came from it for {} s", SILENCE.as_secs());
                    inbox.gone.get_or_insert(m);
                    peer.came.notify_all();
                }
            }
            over = lock(&self.over);
        }
    }
}

impl Peer {
    /// Reads what comes until nothing comes any more.
    fn listen(&self, mut from: TcpStream) {
        let why = loop {
            match self.frame(&mut from) {
                Ok(FrameKind::Leave) => break "it has ended".to_string(),
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
                    break "its connection ended".to_string();
                }
                Err(e) => break format!("its connection failed: {e}"),
            }
        };
        lock(&self.inbox).gone.get_or_insert(why);
        self.came.notify_all();
    }

    fn frame(&self, from: &mut TcpStream) -> io::Result<FrameKind> {
        let header = FrameHeader::read(from)?;
        let mut bytes = Vec::new();
        let mut left = header.bytes;
        // Memory grows as bytes come, and a long frame says all along that its sender is there.
        while left > 0 {
            let part = left.min(1 << 22);
            let read = Read::by_ref(from).take(part).read_to_end(&mut bytes)?;
            if read as u64 != part {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            left -= part;
            lock(&self.inbox).heard = Instant::now();
        }
        let mut inbox = lock(&self.inbox);
        inbox.heard = Instant::now();
        if header.kind == FrameKind::Data {
            inbox.parts.push_back((header.number, bytes));
            self.came.notify_all();
        }
        Ok(header.kind)
    }

    fn send(&self, number: u64, bytes: &[u8]) -> Result<(), Diagnostic> {
        let writer = &mut *lock(&self.writer);
        let header = FrameHeader { kind: FrameKind::Data, number, bytes: bytes.len() as u64 };
        header.write(writer).and_then(|()| writer.write_all(bytes)).map_err(|e| {
            let why = lock(&self.inbox).gone.clone();
            self.lost(&why.unwrap_or_else(|| format!("its connection failed: {e}")))
        })
    }

    /// The part of an exchange that this rank sends.
    fn receive(&self, number: u64, to: &mut [u8]) -> Result<(), Diagnostic> {
        let mut inbox = lock(&self.inbox);
        let (found, bytes) = loop {
            // What it has sent counts, even if it is gone.
            if let Some(part) = inbox.parts.pop_front() {
                break part;
            }
            if let Some(why) = &inbox.gone {
                return Err(self.lost(why));
            }
            inbox = self.came.wait(inbox).unwrap_or_else(PoisonError::into_inner);
        };
        if found != number || bytes.len() != to.len() {
            let m = format!(
                "rank {} is at exchange {found} of {} bytes, this rank at {number} of {}",
                self.rank,
                bytes.len(),
                to.len()
            );
            return Err(Diagnostic::new(At::default(), Kind::Usage, m));
        }
        to.copy_from_slice(&bytes);
        Ok(())
    }

    fn lost(&self, why: &str) -> Diagnostic {
        lost(format!("rank {} is lost: {why}", self.rank))
    }
}

impl Communicator for TcpMesh {
    fn rank(&self) -> u32 {
        self.links.rank
    }

    fn ranks(&self) -> u32 {
        self.ranks
    }

    fn exchange(&self, kind: ExchangeKind, from: &[u8], to: &mut [u8]) -> Result<(), Diagnostic> {
        let (own, ranks) = (self.rank() as usize, self.ranks as usize);
        let mut next = lock(&self.next);
        let number = *next;
        *next += 1;
        let part = |whole: usize, rank: usize| {
            let bytes = whole / ranks;
            rank * bytes..(rank + 1) * bytes
        };
        let peers = || {
            // Each begins with the one after it, so that not all send to one.
            let after =
                self.links.peers.iter().position(|peer| peer.rank as usize > own).unwrap_or(0);
            self.links.peers[after..].iter().chain(&self.links.peers[..after])
        };
        match kind {
            ExchangeKind::Index => to.copy_from_slice(&(own as i32).to_ne_bytes()),
            ExchangeKind::AllGather => {
                peers().try_for_each(|peer| peer.send(number, from))?;
                let whole = to.len();
                to[part(whole, own)].copy_from_slice(from);
                for peer in peers() {
                    peer.receive(number, &mut to[part(whole, peer.rank as usize)])?;
                }
            }
            ExchangeKind::AllToAll => {
                let whole = to.len();
                for peer in peers() {
                    peer.send(number, &from[part(whole, peer.rank as usize)])?;
                }
                to[part(whole, own)].copy_from_slice(&from[part(whole, own)]);
                for peer in peers() {
                    peer.receive(number, &mut to[part(whole, peer.rank as usize)])?;
                }
            }
            ExchangeKind::Broadcast { root } if root as usize == own => {
                peers().try_for_each(|peer| peer.send(number, from))?;
                to.copy_from_slice(from);
            }
            ExchangeKind::Broadcast { root } => {
                let sender = self.links.peers.iter().find(|peer| peer.rank == root);
                let sender = sender.ok_or_else(|| lost(format!("there is no rank {root}")))?;
                sender.receive(number, to)?;
            }
        }
        Ok(())
    }

    fn check(&self) -> Result<(), Diagnostic> {
        for peer in &self.links.peers {
            if let Some(why) = &lock(&peer.inbox).gone {
                return Err(peer.lost(why));
            }
        }
        Ok(())
    }
}
