//! How ranks find each other: all say to rank 0 where they listen, rank 0 tells all of all, and each pair connects.

use super::environment::RankEnvironment;
use super::{SILENCE, lost};
use adfuse_ir::{At, Diagnostic, Kind};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// What a connection begins with; ranks of another version do not understand each other.
const HELLO: &[u8; 16] = b"adfuse ranks 1\r\n";

/// How long is waited before what failed is tried again.
const PAUSE: Duration = Duration::from_millis(20);

/// How long somebody who has connected may take to say who it is.
const SLOW: Duration = Duration::from_secs(10);

/// The connections of a rank, by the number of the other one; there is none to itself.
pub(super) type Peers = Vec<Option<TcpStream>>;

struct Meeting<'e> {
    environment: &'e RankEnvironment,
    until: Instant,
}

/// Connects every rank with every other.
///
/// # Errors
/// [`Kind::LostRank`] if a rank does not come in time, or has ended before it came, and if the address is not resolved by then; [`Kind::Usage`] if two processes
/// have the same rank, or if they disagree on the number of ranks.
pub(super) fn meet(environment: &RankEnvironment) -> Result<Peers, Diagnostic> {
    let meeting = Meeting { environment, until: Instant::now() + environment.wait };
    let peers = match environment.rank {
        0 => meeting.host()?,
        _ => meeting.join()?,
    };
    for peer in peers.iter().flatten() {
        // Whoever does not read for so long is lost.
        let set = peer.set_nodelay(true).and_then(|()| peer.set_read_timeout(None));
        let set = set.and_then(|()| peer.set_write_timeout(Some(SILENCE)));
        set.map_err(|e| failed("set up a connection", &e))?;
    }
    Ok(peers)
}

fn failed(what: &str, e: &io::Error) -> Diagnostic {
    lost(format!("cannot {what}: {e}"))
}

impl Meeting<'_> {
    /// Rank 0: waits for all others, and tells each where they listen.
    fn host(&self) -> Result<Peers, Diagnostic> {
        let RankEnvironment { address, port, ranks, .. } = self.environment;
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, *port)).map_err(|e| {
            let m = format!("rank 0 cannot listen at port {port}: {e}");
            Diagnostic::new(At::default(), Kind::Usage, m)
                .hint(format!("MASTER_ADDR is {address}; MASTER_PORT is for this run alone"))
        })?;
        let mut peers: Peers = (0..*ranks).map(|_| None).collect();
        let mut places: Vec<Option<SocketAddr>> = vec![None; *ranks as usize];
        let waits = |peers: &Peers| -> Vec<u32> {
            (1..*ranks).filter(|&r| peers[r as usize].is_none()).collect()
        };
        while peers.iter().skip(1).any(Option::is_none) {
            let (mut stream, from) = self.accept(&listener, &|| waits(&peers))?;
            // What is not a rank is not waited for.
            let Ok([rank, world, port]) = introduced(&mut stream) else { continue };
            let slot = peers.get_mut(rank as usize).filter(|_| rank > 0 && world == *ranks);
            let m = match slot {
                None => format!("rank {rank} says that there are {world} ranks, rank 0 of {ranks}"),
                Some(Some(_)) => format!("two processes say that they are rank {rank}"),
                Some(slot) => {
                    let port = u16::try_from(port).unwrap_or(0);
                    places[rank as usize] = Some(SocketAddr::new(from.ip(), port));
                    *slot = Some(stream);
                    continue;
                }
            };
            return Err(Diagnostic::new(At::default(), Kind::Usage, m));
        }
        let mut list = Vec::new();
        for place in places.iter().skip(1).flatten() {
            list.extend(addressed(*place));
        }
        for peer in peers.iter_mut().flatten() {
            peer.write_all(&list).map_err(|e| failed("tell the ranks of each other", &e))?;
        }
        Ok(peers)
    }

    /// Another rank: says to rank 0 where it listens, and connects with those before it.
    fn join(&self) -> Result<Peers, Diagnostic> {
        let RankEnvironment { rank, ranks, .. } = *self.environment;
        let listen = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0));
        let listener = listen.map_err(|e| failed("listen", &e))?;
        let port = listener.local_addr().map_err(|e| failed("listen", &e))?.port();
        let mut host = self.reach_host()?;
        introduce(&mut host, [rank, ranks, port.into()]).map_err(|e| failed("reach rank 0", &e))?;
        let left = self.until.saturating_duration_since(Instant::now()).max(PAUSE);
        let mut list = vec![0; 6 * (ranks as usize - 1)];
        // Rank 0 notices who has ended, and ends then.
        let told = host.set_read_timeout(Some(left)).and_then(|()| host.read_exact(&mut list));
        told.map_err(|e| lost(format!("rank 0 did not tell where the other ranks are: {e}")))?;
        let places: Vec<SocketAddr> = list.chunks(6).map(placed).collect();
        let mut peers: Peers = (0..ranks).map(|_| None).collect();
        peers[0] = Some(host);
        for other in 1..rank {
            let mut stream = self.reach(places[other as usize - 1], other)?;
            introduce(&mut stream, [rank, ranks, 0])
                .map_err(|e| failed(&format!("reach rank {other}"), &e))?;
            peers[other as usize] = Some(stream);
        }
        while peers[rank as usize + 1..].iter().any(Option::is_none) {
            let waits = || (rank + 1..ranks).filter(|&r| peers[r as usize].is_none()).collect();
            let (mut stream, _) = self.accept(&listener, &waits)?;
            let Ok([other, ..]) = introduced(&mut stream) else { continue };
            if other > rank
                && let Some(slot) = peers.get_mut(other as usize)
            {
                *slot = Some(stream);
            }
        }
        Ok(peers)
    }

    /// Errs where one of these ranks has ended: it does not come any more.
    fn none_has_ended(&self, waited_for: &[u32]) -> Result<(), Diagnostic> {
        match waited_for.iter().find(|&&rank| self.environment.has_ended(rank)) {
            None => Ok(()),
            Some(rank) => Err(lost(format!("rank {rank} is lost: it ended before it joined"))),
        }
    }

    fn late(&self) -> bool {
        Instant::now() >= self.until
    }

    fn accept(
        &self,
        listener: &TcpListener,
        missing: &dyn Fn() -> Vec<u32>,
    ) -> Result<(TcpStream, SocketAddr), Diagnostic> {
        listener.set_nonblocking(true).map_err(|e| failed("listen", &e))?;
        loop {
            match listener.accept() {
                Ok((stream, from)) => {
                    let set = stream.set_nonblocking(false);
                    set.map_err(|e| failed("set up a connection", &e))?;
                    return Ok((stream, from));
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => return Err(failed("accept a connection", &e)),
            }
            let missing = missing();
            self.none_has_ended(&missing)?;
            if self.late() {
                let wait = self.environment.wait.as_secs();
                let s = if missing.len() == 1 { "" } else { "s" };
                let missing: Vec<String> = missing.iter().map(u32::to_string).collect();
                let m = format!("rank{s} {} did not come within {wait} s", missing.join(", "));
                return Err(lost(m));
            }
            sleep(PAUSE);
        }
    }

    /// Rank 0, which may not listen yet.
    fn reach_host(&self) -> Result<TcpStream, Diagnostic> {
        let RankEnvironment { address, port, wait, .. } = self.environment;
        loop {
            let found = (address.as_str(), *port).to_socket_addrs();
            let found = found.and_then(|mut all| {
                let first = all.clone().find(SocketAddr::is_ipv4).or_else(|| all.next());
                first.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no address"))
            });
            match found.and_then(|at| TcpStream::connect_timeout(&at, SLOW)) {
                Ok(stream) => return Ok(stream),
                Err(e) if self.late() => {
                    let wait = wait.as_secs();
                    return Err(lost(format!(
                        "rank 0 was not at {address}:{port} within {wait} s: {e}"
                    )));
                }
                Err(_) => {
                    self.none_has_ended(&[0])?;
                    sleep(PAUSE);
                }
            }
        }
    }

    fn reach(&self, at: SocketAddr, other: u32) -> Result<TcpStream, Diagnostic> {
        loop {
            match TcpStream::connect_timeout(&at, SLOW) {
                Ok(stream) => return Ok(stream),
                Err(e) if self.late() => {
                    return Err(failed(&format!("reach rank {other} at {at}"), &e));
                }
                Err(_) => {
                    self.none_has_ended(&[other])?;
                    sleep(PAUSE);
                }
            }
        }
    }
}

/// Says who this is.
fn introduce(to: &mut TcpStream, numbers: [u32; 3]) -> io::Result<()> {
    let mut hello = HELLO.to_vec();
    numbers.iter().for_each(|n| hello.extend(n.to_le_bytes()));
    to.write_all(&hello)
}

/// Who that is.
fn introduced(from: &mut TcpStream) -> io::Result<[u32; 3]> {
    from.set_read_timeout(Some(SLOW))?;
    let mut hello = [0; HELLO.len() + 12];
    from.read_exact(&mut hello)?;
    if hello[..HELLO.len()] != *HELLO {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "no rank of this version"));
    }
    let mut numbers = [0; 3];
    for (number, bytes) in numbers.iter_mut().zip(hello[HELLO.len()..].chunks(4)) {
        *number = bytes.iter().rev().fold(0, |n, &byte| n << 8 | u32::from(byte));
    }
    Ok(numbers)
}

/// An address in six bytes; ranks listen at addresses of four.
fn addressed(at: SocketAddr) -> [u8; 6] {
    let ip = match at.ip() {
        IpAddr::V4(ip) => ip,
        IpAddr::V6(ip) => ip.to_ipv4_mapped().unwrap_or(Ipv4Addr::LOCALHOST),
    };
    let ([a, b, c, d], [e, f]) = (ip.octets(), at.port().to_be_bytes());
    [a, b, c, d, e, f]
}

fn placed(bytes: &[u8]) -> SocketAddr {
    let ip = Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]);
    SocketAddr::new(IpAddr::V4(ip), u16::from_be_bytes([bytes[4], bytes[5]]))
}
