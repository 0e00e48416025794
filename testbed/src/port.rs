//! Ports that nobody else takes, not even while the server is down.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};

/// Below the range from which systems take the ports of outgoing connections (Linux: from 32768, others from 49152):
/// such a connection would otherwise take a killed server's port before its restart.
const RANGE: std::ops::Range<u16> = 20_000..32_000;

/// A port number that is ours until this is dropped or the process ends.
///
/// Among test processes the reservation is a bound UDP socket of the same number, which no server here uses. Other
/// programs know nothing of it: with them a start is tried again on another port.
#[derive(Debug)]
pub struct Port {
    number: u16,
    _reservation: UdpSocket,
}

impl Port {
    /// Reserves some free port.
    ///
    /// # Errors
    /// If all of them are taken.
    pub fn reserve() -> io::Result<Self> {
        // The standard library's only source of randomness: hashers are seeded.
        let start = RandomState::new().hash_one(std::process::id());
        let size = u64::from(RANGE.end - RANGE.start);
        (0..size)
            .map(|step| RANGE.start + ((start.wrapping_add(step)) % size) as u16)
            .find_map(Self::take)
            .ok_or_else(|| io::Error::new(io::ErrorKind::AddrInUse, format!("all ports of {RANGE:?} are taken")))
    }

    /// The number. The address is that of the loopback interface.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// Whether a server could listen here now.
    pub(crate) fn is_free(&self) -> bool {
        is_free(self.number)
    }

    fn take(number: u16) -> Option<Self> {
        let reservation = UdpSocket::bind((Ipv4Addr::LOCALHOST, number)).ok()?;
        is_free(number).then_some(Self {
            number,
            _reservation: reservation,
        })
    }
}

/// On all addresses, because a server of somebody else may listen there.
fn is_free(number: u16) -> bool {
    TcpListener::bind((Ipv4Addr::UNSPECIFIED, number)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserved_port_is_not_given_twice() {
        let ports: Vec<Port> = (0..50).map(|_| Port::reserve().expect("a free port")).collect();
        let mut numbers: Vec<u16> = ports.iter().map(Port::number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 50);
        assert!(Port::take(numbers[0]).is_none());
    }

    #[test]
    fn a_port_with_a_listener_is_not_free() {
        let port = Port::reserve().expect("a free port");
        assert!(port.is_free());
        let _listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port.number())).expect("it is free");
        assert!(!port.is_free());
    }
}
