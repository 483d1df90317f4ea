//! Where the buffers of a program are, and what its caller is handed.

use super::scratch::ScratchLayout;
use crate::runtime::arena_layout::ArenaLayout;
use crate::runtime::host_memory::{ALIGN, OffsetAllocator};
use crate::runtime::legalize::Legalized;
use adfuse_ir::kernel::{Buffer, BufferData, DonorSlice, Role, misplaced};
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
    /// In the array of an input, by position, from this byte on.
    Input(usize, u64),
    /// In the array of a result, by position, from this byte on.
    Output(usize, u64),
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
            Some(BufferPlace::Input(j, _)) if data.role == Role::Output => Some(*j),
            _ => None,
        };
        let own = matches!(places.get(b.index()), Some(BufferPlace::Output(at, _)) if *at == k);
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
        if let Some(slice) = arena.in_donor[b] {
            let place = in_donor(low, arena, b, slice).map_err(|m| usage(data, m))?;
            places.push(place);
            continue;
        }
        let room =
            |room: &mut OffsetAllocator| room.take(i64::try_from(size).unwrap_or(i64::MAX), 1);
        places.push(match &data.role {
            Role::Input => BufferPlace::Input(first(&low.inputs).unwrap_or_default(), 0),
            Role::Output => BufferPlace::Output(first(&low.outputs).unwrap_or_default(), 0),
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

/// The place of a buffer in an array of the caller, or what is wrong with that.
fn in_donor(
    low: &Legalized,
    arena: &ArenaLayout,
    b: Buffer,
    slice: DonorSlice,
) -> Result<BufferPlace, &'static str> {
    let (program, DonorSlice { donor, at }) = (&low.program, slice);
    if let Some(m) = misplaced(program, b, slice) {
        return Err(m);
    }
    let input = low.inputs.iter().position(|&b| b == donor);
    let output = low.outputs.iter().position(|&b| b == donor);
    match (&program.buffers[donor].role, input, output) {
        (Role::Input, Some(k), _) => Ok(BufferPlace::Input(k, at)),
        (Role::Output, _, Some(k)) if arena.in_donor[donor].is_none() => {
            Ok(BufferPlace::Output(k, at))
        }
        _ => Err("is in an array that the caller does not have"),
    }
}
