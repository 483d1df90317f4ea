//! Vector constants in memory next to the code: instructions use them as memory operands, so that they take no
//! registers.

/// Vectors in memory that stays where it is.
#[derive(Default)]
pub(crate) struct Constants {
    chunks: Vec<Box<[u128]>>,
    used: usize,
}

/// Vectors of a chunk, and those that must be left when a function begins.
const CHUNK: usize = 512;
const LEFT: usize = 192;

impl Constants {
    /// Makes room for those of another function; gives where they are.
    pub(crate) fn begin(&mut self) -> *const u8 {
        if self.chunks.is_empty() || self.used + LEFT > CHUNK {
            self.chunks.push(vec![0; CHUNK].into_boxed_slice());
            self.used = 0;
        }
        self.chunks.last().map_or(std::ptr::null(), |c| c.as_ptr().cast())
    }

    /// How far from there these vectors are, one after the other; `None` where no room is left.
    pub(crate) fn place(&mut self, bits: u128, times: usize) -> Option<i32> {
        let chunk = self.chunks.last_mut()?;
        let there = chunk[..self.used].windows(times).position(|w| w.iter().all(|&b| b == bits));
        let at = match there {
            Some(at) => at,
            None => {
                let at = self.used;
                chunk.get_mut(at..at + times)?.fill(bits);
                self.used = at + times;
                at
            }
        };
        i32::try_from(at * size_of::<u128>()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_constants_share_a_place_and_places_stay() {
        let mut all = Constants::default();
        let start = all.begin();
        assert_eq!(all.place(7, 1), Some(0));
        assert_eq!(all.place(9, 2), Some(16));
        assert_eq!(
            (all.place(7, 1), all.place(9, 1), all.place(9, 2)),
            (Some(0), Some(16), Some(16))
        );
        assert_eq!(all.place(7, 2), Some(48));
        assert_eq!(all.begin(), start);
        assert_eq!(all.chunks[0][..5], [7, 9, 9, 7, 7]);
        for k in 10.. {
            if all.place(k, 1).is_none() {
                assert_eq!(k, 10 + CHUNK as u128 - 5);
                break;
            }
        }
        assert_ne!(all.begin(), start);
        assert_eq!(all.chunks[0][..5], [7, 9, 9, 7, 7]);
        assert_eq!(all.place(7, 1), Some(0));
    }
}
