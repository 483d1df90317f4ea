//! Constants of a function, in memory before its code.

use super::inst::Mem;

/// Bytes at offsets; equal ones share a place.
#[derive(Default)]
pub(crate) struct ConstantPool {
    bytes: Vec<u8>,
    /// Where there are how many.
    places: Vec<(u32, u32)>,
}

impl ConstantPool {
    /// Where these bytes are, at a multiple of their number.
    pub(crate) fn place(&mut self, wanted: &[u8]) -> u32 {
        let n = wanted.len();
        let there = |&&(at, len): &&(u32, u32)| {
            len as usize == n && self.bytes.get(at as usize..at as usize + n) == Some(wanted)
        };
        if let Some(&(at, _)) = self.places.iter().find(there) {
            return at;
        }
        let at = self.bytes.len().next_multiple_of(n.next_power_of_two().min(64));
        self.bytes.resize(at, 0);
        self.bytes.extend_from_slice(wanted);
        self.places.push((at as u32, n as u32));
        at as u32
    }

    /// An element of 4 or 8 bytes that an instruction reads for every lane: of 512-bit code one element,
    /// of 256-bit code a whole vector.
    pub(crate) fn every(&mut self, bits: u64, bytes: u8, wide: bool) -> Mem {
        let one = &bits.to_le_bytes()[..usize::from(bytes.min(8))];
        match wide {
            true => Mem::Const { offset: self.place(one), every: true },
            false => {
                let all = one.repeat(32 / one.len().max(1));
                Mem::Const { offset: self.place(&all), every: false }
            }
        }
    }

    /// All of them, this many that code may follow.
    pub(crate) fn bytes(mut self) -> Vec<u8> {
        let n = self.bytes.len().next_multiple_of(64);
        self.bytes.resize(n, 0);
        self.bytes
    }
}
