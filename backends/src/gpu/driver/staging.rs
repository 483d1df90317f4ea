//! Between the caller's memory and the device's: by way of two pinned pieces that take turns, so that one
//! is filled or emptied while the other is on its way.
#![allow(unsafe_code)]

use super::cuda::{Refused, answered};
use cudarc::driver::sys::{self, CUdeviceptr, CUevent, CUevent_flags, CUstream};

/// Bytes of a piece.
const PIECE: usize = 8 << 20;

/// Two pieces of memory that the device reaches itself, made when they are needed first.
#[derive(Default)]
pub(crate) struct Staging {
    pieces: Vec<Piece>,
}

/// Pinned memory, and when the device is done with it.
struct Piece {
    start: *mut u8,
    done: CUevent,
}

// SAFETY: pieces are memory that nobody else knows of.
unsafe impl Send for Staging {}

impl Staging {
    /// Copies bytes to the device. When this is done the caller's bytes have been read; they arrive in the
    /// order of the stream.
    pub(crate) fn upload(
        &mut self,
        from: &[u8],
        to: CUdeviceptr,
        stream: CUstream,
    ) -> Result<(), Refused> {
        self.make()?;
        for (n, chunk) in from.chunks(PIECE).enumerate() {
            let piece = &self.pieces[n % self.pieces.len()];
            piece.wait()?;
            let at = to + (n * PIECE) as u64;
            // SAFETY: the piece has this many bytes, and the device is done with it; the caller has as many
            // at `to`.
            unsafe {
                std::ptr::copy_nonoverlapping(chunk.as_ptr(), piece.start, chunk.len());
                let sent = sys::cuMemcpyHtoDAsync_v2(at, piece.start.cast(), chunk.len(), stream);
                answered("cuMemcpyHtoDAsync", sent)?;
            }
            piece.mark(stream)?;
        }
        Ok(())
    }

    /// Copies bytes from the device, after what the stream does before.
    pub(crate) fn download(
        &mut self,
        from: CUdeviceptr,
        to: &mut [u8],
        stream: CUstream,
    ) -> Result<(), Refused> {
        self.make()?;
        let count = to.len().div_ceil(PIECE);
        let size = |n: usize, all: usize| (all - n * PIECE).min(PIECE);
        let all = to.len();
        // One piece ahead.
        for n in 0..=count {
            if n < count {
                let piece = &self.pieces[n % self.pieces.len()];
                let at = from + (n * PIECE) as u64;
                // SAFETY: the piece has this many bytes, which were read when it was emptied before.
                let sent = unsafe {
                    sys::cuMemcpyDtoHAsync_v2(piece.start.cast(), at, size(n, all), stream)
                };
                answered("cuMemcpyDtoHAsync", sent)?;
                piece.mark(stream)?;
            }
            if let Some(before) = n.checked_sub(1) {
                let piece = &self.pieces[before % self.pieces.len()];
                piece.wait()?;
                let bytes = &mut to[before * PIECE..][..size(before, all)];
                // SAFETY: the device has written this many bytes of the piece.
                unsafe {
                    std::ptr::copy_nonoverlapping(piece.start, bytes.as_mut_ptr(), bytes.len());
                }
            }
        }
        Ok(())
    }

    fn make(&mut self) -> Result<(), Refused> {
        while self.pieces.len() < 2 {
            self.pieces.push(Piece::new()?);
        }
        Ok(())
    }

    /// Gives the memory back.
    pub(crate) fn free(&mut self) {
        for piece in self.pieces.drain(..) {
            // SAFETY: both were made with the piece, which is gone; the device is done with it.
            unsafe {
                sys::cuEventSynchronize(piece.done);
                sys::cuEventDestroy_v2(piece.done);
                sys::cuMemFreeHost(piece.start.cast());
            }
        }
    }
}

impl Piece {
    fn new() -> Result<Piece, Refused> {
        let mut start = std::ptr::null_mut();
        // SAFETY: the driver writes where the memory begins.
        let code = unsafe { sys::cuMemAllocHost_v2(&raw mut start, PIECE) };
        answered("cuMemAllocHost", code)?;
        let mut done = std::ptr::null_mut();
        let flags = CUevent_flags::CU_EVENT_DISABLE_TIMING as u32;
        // SAFETY: the driver writes a handle.
        answered("cuEventCreate", unsafe { sys::cuEventCreate(&raw mut done, flags) })?;
        Ok(Piece { start: start.cast(), done })
    }

    /// Waits until the device is done with it.
    fn wait(&self) -> Result<(), Refused> {
        // SAFETY: the event lives as long as the piece; one that was never recorded is done.
        answered("cuEventSynchronize", unsafe { sys::cuEventSynchronize(self.done) })
    }

    fn mark(&self, stream: CUstream) -> Result<(), Refused> {
        // SAFETY: event and stream are the device's, and live.
        answered("cuEventRecord", unsafe { sys::cuEventRecord(self.done, stream) })
    }
}
