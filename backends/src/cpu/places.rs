//! Where the buffers of a program are, and what its caller is handed.

use super::scratch::ScratchLayout;
use crate::runtime::arena_layout::ArenaLayout;
use crate::runtime::host_memory::{ALIGN, OffsetAllocator};
use crate::runtime::legalize::Legalized;
use adfuse_ir::kernel::{Buffer, BufferData, Role};
use adfuse_ir::{At, DType, Diagnostic, Kind, TensorType};
use cranelift_entity::EntityRef;

/// What a caller is handed.
pub(super) struct ResultBuffer {
    pub(super) dtype: DType,
    pub(super) dims: Vec<u64>,
    pub(super) buffer: usize,
    /// Copied from the buffer when all is done; written in place otherwise.
    pub(super) copied: bool,
    /// The input in whose memory it is left, by position.
    pub(super) left_in: Option<usize>,
    /// Its position among those that the caller has memory for.
    pub(super) at: usize,
    pub(super) bytes: usize,
}

/// Where a buffer is.
#[derive(Clone, Copy)]
pub(super) enum BufferPlace {
    Input(usize),
    Output(usize),
    /// In the arena, or beside it.
    Arena(u64),
    Constant(u64),
}

/// The outputs that the caller has memory for.
pub(super) fn handed(outputs: &[ResultBuffer]) -> impl Iterator<Item = &ResultBuffer> {
    outputs.iter().filter(|o| o.left_in.is_none())
}

pub(super) fn bytes(ty: &TensorType) -> usize {
    ty.elements().and_then(|n| n.checked_mul(ty.dtype.bytes())).map_or(0, |n| n as usize)
}

pub(super) fn outputs(low: &Legalized, places: &[BufferPlace]) -> Vec<ResultBuffer> {
    let mut at = 0;
    let made = |(k, &b): (usize, &Buffer)| {
        let data = &low.program.buffers[b];
        let ty = data.ty()?;
        let left_in = match places.get(b.index()) {
            Some(BufferPlace::Input(j)) if data.role == Role::Output => Some(*j),
            _ => None,
        };
        let own = matches!(places.get(b.index()), Some(BufferPlace::Output(at)) if *at == k);
        let copied = !own && left_in.is_none();
        let (dims, buffer) = (ty.dims()?.to_vec(), b.index());
        let output =
            ResultBuffer { dtype: ty.dtype, dims, buffer, copied, left_in, at, bytes: bytes(&ty) };
        at += usize::from(left_in.is_none());
        Some(output)
    };
    low.outputs.iter().enumerate().filter_map(made).collect()
}

/// Finds a place for every buffer, and checks those that are given.
pub(super) fn place(
    low: &Legalized,
    arena: &ArenaLayout,
    rooms: &ScratchLayout,
    constants: &mut OffsetAllocator,
) -> Result<Vec<BufferPlace>, Diagnostic> {
    let usage = |data: &BufferData, m: &str| {
        let m = format!("the layout of the arena does not fit: %{} {m}", data.name);
        Diagnostic::new(At::default(), Kind::Usage, m)
    };
    let mut places = Vec::new();
    for (b, data) in low.program.buffers.iter() {
        let first = |all: &[Buffer]| all.iter().position(|&x| x == b);
        let size = data.bytes();
        if let Some(input) = arena.donated[b] {
            places.push(BufferPlace::Input(given(low, b, input).map_err(|m| usage(data, m))?));
            continue;
        }
        let room =
            |room: &mut OffsetAllocator| room.take(i64::try_from(size).unwrap_or(i64::MAX), 1);
        places.push(match &data.role {
            Role::Input => BufferPlace::Input(first(&low.inputs).unwrap_or_default()),
            Role::Output => BufferPlace::Output(first(&low.outputs).unwrap_or_default()),
            Role::Constant(_) => BufferPlace::Constant(room(constants)?),
            Role::Temp => match arena.offsets[b].or(rooms.temps[b]) {
                None => return Err(usage(data, "has no place")),
                Some(at) if rooms.temps[b].is_some() => BufferPlace::Arena(at),
                Some(at) if at % ALIGN != 0 => return Err(usage(data, "is not aligned")),
                Some(at) if at.checked_add(size).is_none_or(|end| end > arena.bytes) => {
                    return Err(usage(data, "is outside"));
                }
                Some(at) => BufferPlace::Arena(at),
            },
        });
    }
    Ok(places)
}

/// The position of the input in whose memory a buffer is to be, or what is wrong with that.
fn given(low: &Legalized, b: Buffer, input: Buffer) -> Result<usize, &'static str> {
    let data = &low.program.buffers[b];
    let at = low.inputs.iter().position(|&b| b == input);
    let given = low.program.buffers.get(input).filter(|i| i.donated);
    let (Some(at), Some(given)) = (at, given) else {
        return Err("is in the memory of what is no input that is given up");
    };
    let fits = match data.role {
        Role::Temp => data.bytes() <= given.bytes(),
        // What is handed over twice is in two places.
        Role::Output => {
            let times = low.outputs.iter().filter(|&&o| o == b).count();
            times == 1 && data.bytes() == given.bytes()
        }
        Role::Input | Role::Constant(_) => false,
    };
    fits.then_some(at).ok_or("does not fit into the input that is given up for it")
}
