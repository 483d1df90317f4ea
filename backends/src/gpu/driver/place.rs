//! Where every buffer of a program is while it runs, and what each step needs beside them.

use crate::gpu::launches::{Arg, Launch, PtxModule, StepCode};
use crate::runtime::arena_layout::ArenaLayout;
use crate::runtime::array::out_of_memory;
use adfuse_ir::kernel::{Buffer, BufferData, DonorSlice, Program, Role, Space, misplaced};
use adfuse_ir::{At, Diagnostic, Kind};
use cranelift_entity::SecondaryMap;

/// Where a buffer is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// In an input's memory, by position, from this byte on.
    Input(usize, u64),
    /// In a result's memory, by position, from this byte on.
    Output(usize, u64),
    /// In the executable's block.
    DeviceBlock(u64),
    /// In its pinned memory.
    Host(u64),
}

/// Where everything is. The block has the arena first, then what is beside it, then the constants.
pub(crate) struct Places {
    all_buffers: Vec<Place>,
    /// For buffers in the memory of an input that is given up.
    given_up: SecondaryMap<Buffer, bool>,
    /// For results that are copied when all is done, out of buffers that have them otherwise: the
    /// position of the result.
    pub(crate) left_at: SecondaryMap<Buffer, Option<usize>>,
    /// Where each step has what it needs beside the buffers, to be aligned.
    pub(crate) scratch: Vec<u64>,
    /// Bytes beside the arena, and of the constants.
    pub(crate) beside: u64,
    pub(crate) constants: u64,
    pub(crate) constants_at: u64,
    /// Where the constants of programs in steps begin.
    pub(crate) block_constants_at: u64,
    /// Bytes of the block.
    pub(crate) all: u64,
    /// Bytes of the pinned memory.
    pub(crate) host: u64,
}

/// What every place in the block is a multiple of.
const ALIGN: u64 = 256;

/// What places in the arena are multiples of.
const PLANNED: u64 = 64;

/// What a step's memory begins at a multiple of. Plans give out places at multiples of less.
const SCRATCH_ALIGN: u64 = 256;

/// The first multiple of what scratch begins at.
pub(crate) fn aligned(at: u64) -> u64 {
    at.next_multiple_of(SCRATCH_ALIGN)
}

/// Bytes with what is behind them to begin at a multiple of what scratch begins at.
pub(crate) fn with_slack(bytes: u64) -> u64 {
    if bytes == 0 { 0 } else { bytes.saturating_add(SCRATCH_ALIGN - PLANNED) }
}

/// Gives out places in a block that is made later.
pub(crate) struct Room(u64);

impl Room {
    /// From this place on.
    pub(crate) fn at(at: u64) -> Room {
        Room(at)
    }

    /// One past what was taken.
    pub(crate) fn end(&self) -> u64 {
        self.0
    }

    pub(crate) fn take(&mut self, bytes: u64) -> Result<u64, Diagnostic> {
        let at = self.0.checked_next_multiple_of(ALIGN);
        let end = at.and_then(|at| at.checked_add(bytes)).filter(|&end| end < 1 << 46);
        let (Some(at), Some(end)) = (at, end) else { return Err(out_of_memory(bytes)) };
        self.0 = end;
        Ok(at)
    }
}

impl Places {
    /// Finds a place for every buffer, and checks those that are given. Last come the constants of
    /// programs in steps, `block_constants` bytes.
    pub(crate) fn new(
        program: &Program,
        arena: &ArenaLayout,
        module: &PtxModule,
        needed: &[u64],
        block_constants: u64,
    ) -> Result<Places, Diagnostic> {
        let (entered, left) = (caller_buffers(&module.enter), caller_buffers(&module.leave));
        let mut left_at = SecondaryMap::new();
        for b in left {
            left_at[b] = program.outputs.iter().position(|&o| o == b);
        }
        let mut beside = Room(arena.bytes);
        let mut host = Room(0);
        let mut given_up = SecondaryMap::new();
        let mut all_buffers = Vec::new();
        for (b, data) in program.buffers.iter() {
            let output = program.outputs.iter().position(|&o| o == b);
            all_buffers.push(match (&data.role, arena.in_donor[b]) {
                (_, Some(slice)) => {
                    let place = in_donor(program, arena, b, slice).map_err(|m| misfit(data, m))?;
                    given_up[b] = matches!(place, Place::Input(..));
                    place
                }
                _ if data.space == Space::Host => Place::Host(host.take(data.bytes())?),
                (Role::Input, _) if !entered.contains(&b) => {
                    Place::Input(program.inputs().position(|i| i == b).unwrap_or_default(), 0)
                }
                (Role::Output, _) if output.is_some() && left_at[b].is_none() => {
                    Place::Output(output.unwrap_or_default(), 0)
                }
                (Role::Constant(_), _) => Place::DeviceBlock(0),
                (Role::Temp, _) if arena.offsets[b].is_some() => {
                    let at = arena.offsets[b].unwrap_or_default();
                    inside(at, data.bytes(), arena).map_err(|m| misfit(data, m))?;
                    Place::DeviceBlock(at)
                }
                // What the caller has otherwise, or is not handed.
                _ => Place::DeviceBlock(beside.take(data.bytes())?),
            });
        }
        let (scratch, most) = scratch_places(arena, needed, beside.0)?;
        // What makes them begin where they may is counted with what is beside the arena: a run takes what is
        // planned, to the byte.
        let is_constant = |data: &BufferData| {
            matches!(data.role, Role::Constant(_)) && data.space == Space::Device
        };
        let own = program.buffers.values().any(|data| is_constant(data) && data.bytes() > 0);
        let any = own || block_constants > 0;
        let mut constants = Room(if any { Room(most).take(0)? } else { most });
        let constants_at = constants.0;
        for (place, (_, data)) in all_buffers.iter_mut().zip(program.buffers.iter()) {
            if is_constant(data) {
                *place = Place::DeviceBlock(match any {
                    true => constants.take(data.bytes())?,
                    false => constants_at,
                });
            }
        }
        let block_constants_at = match block_constants {
            0 => constants.0,
            bytes => constants.take(bytes)?,
        };
        Ok(Places {
            block_constants_at,
            all_buffers,
            given_up,
            left_at,
            scratch,
            beside: constants_at - arena.bytes,
            constants: constants.0 - constants_at,
            constants_at,
            all: constants.0,
            host: host.0,
        })
    }

    /// Where a buffer is.
    pub(crate) fn of(&self, b: Buffer) -> Place {
        self.all_buffers[cranelift_entity::EntityRef::index(b)]
    }

    /// Where each buffer is, in their order.
    pub(crate) fn each(&self) -> impl Iterator<Item = &Place> {
        self.all_buffers.iter()
    }

    /// Where in the host's memory a buffer is, if it is there.
    pub(crate) fn host_at(&self, b: Buffer) -> Option<u64> {
        match self.of(b) {
            Place::Host(at) => Some(at),
            _ => None,
        }
    }

    /// Whether a buffer is in the memory of an input that is given up for it.
    pub(crate) fn is_given_up(&self, b: Buffer) -> bool {
        self.given_up[b]
    }

    /// The names of the inputs that are written to, by position.
    pub(crate) fn written(&self, program: &Program) -> Vec<Option<String>> {
        let mut names: Vec<Option<String>> = program.inputs().map(|_| None).collect();
        for b in program.buffers.keys().filter(|&b| self.given_up[b]) {
            if let Place::Input(k, _) = self.of(b) {
                names[k] = program.inputs().nth(k).map(|b| program.buffers[b].name.clone());
            }
        }
        names
    }

    /// The bytes of the constants, as they are in the block.
    pub(crate) fn filled(&self, program: &Program) -> Vec<u8> {
        let mut bytes = vec![0; self.constants as usize];
        for (b, data) in program.buffers.iter() {
            let (Role::Constant(values), Place::DeviceBlock(at)) = (&data.role, self.of(b)) else {
                continue;
            };
            let width = data.dtype.bytes() as usize;
            let to = bytes[(at - self.constants_at) as usize..].chunks_mut(width.max(1));
            for (to, value) in to.zip(values) {
                to.copy_from_slice(&value.bits().to_le_bytes()[..width]);
            }
        }
        bytes
    }
}

/// The buffers in the caller's memory that launches read or write.
fn caller_buffers(code: &StepCode) -> Vec<Buffer> {
    let args = code.launches.iter().flat_map(Launch::given);
    args.filter_map(|a| if let Arg::Caller(b) = a { Some(b) } else { None }).collect()
}

/// Where each step has its scratch, of which `needed` has the bytes, and the end of all of it. What the arena
/// has no place for begins at `beside`.
pub(crate) fn scratch_places(
    arena: &ArenaLayout,
    needed: &[u64],
    beside: u64,
) -> Result<(Vec<u64>, u64), Diagnostic> {
    let mut scratch = Vec::new();
    let mut most = beside;
    for (n, &bytes) in needed.iter().enumerate() {
        scratch.push(match arena.scratch.get(n).copied().flatten() {
            Some((at, size)) if size >= bytes => {
                inside(at, size, arena).map_err(|m| {
                    let m = format!(
                        "the layout of the arena does not fit: the scratch of step {n} {m}"
                    );
                    Diagnostic::new(At::default(), Kind::Usage, m)
                })?;
                at
            }
            // Steps follow each other: one place does for all.
            _ => {
                let mut room = Room(beside);
                let at = room.take(bytes)?;
                most = most.max(room.0);
                at
            }
        });
    }
    Ok((scratch, most))
}

pub(crate) fn misfit(data: &BufferData, m: &str) -> Diagnostic {
    let m = format!("the layout of the arena does not fit: %{} {m}", data.name);
    Diagnostic::new(At::default(), Kind::Usage, m)
}

/// Whether this many bytes are in the arena.
pub(crate) fn inside(at: u64, bytes: u64, arena: &ArenaLayout) -> Result<(), &'static str> {
    if !at.is_multiple_of(PLANNED) {
        return Err("is not aligned");
    }
    match at.checked_add(bytes).filter(|&end| end <= arena.bytes) {
        Some(_) => Ok(()),
        None => Err("is outside"),
    }
}

/// The place of a buffer in an array of the caller, or what is wrong with that.
fn in_donor(
    program: &Program,
    arena: &ArenaLayout,
    b: Buffer,
    slice: DonorSlice,
) -> Result<Place, &'static str> {
    let DonorSlice { donor, at } = slice;
    if let Some(m) = misplaced(program, b, slice) {
        return Err(m);
    }
    let input = program.inputs().position(|i| i == donor);
    let output = program.outputs.iter().position(|&o| o == donor);
    match (&program.buffers[donor].role, input, output) {
        (Role::Input, Some(k), _) => Ok(Place::Input(k, at)),
        (Role::Output, _, Some(k)) if arena.in_donor[donor].is_none() => Ok(Place::Output(k, at)),
        _ => Err("is in an array that the caller does not have"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::ptx::compile;
    use crate::gpu::target::GpuTarget;
    use adfuse_ir::Fp;
    use adfuse_ir::kernel::{text::parse, verify};

    #[test]
    fn every_byte_of_the_block_is_told() {
        let with = |constant: &str, read: &str| {
            let text = format!(
                "program @p {{
                  input %x: f32[70000]
                  {constant}
                  temp %t: f32[3]
                  output %y: f32[]
                  kernel @k [70000] {{
                    stage [] {{
                      p0 = load {read}
                      p1 = load %x[d0]
                      s0 = param.f32 0
                      s1 = param.f32 1
                      s2 = add.f32 s0 s1
                      %y[] = fold.sum s2 lane(d0)
                    }}
                  }}
                  kernel @t [3] {{ stage [] {{ p0 = load %x[d0] s0 = param.f32 0 %t[d0] = store s0 }} }}
                  return %y
                }}"
            );
            verify(parse(&text).unwrap_or_else(|e| panic!("{e:?}")))
                .unwrap_or_else(|e| panic!("{e:?}"))
        };
        let few = with("constant %c: f32[2] = [3.0, 4.0]", "%c[1]");
        let none = with("constant %c: f32[0] = []", "f32(2.0)");
        for (program, constants) in [(few, 8), (none, 0)] {
            let module = compile(&program, GpuTarget::SM90, Fp::Strict).expect("compiles");
            for (bytes, scratch) in [(0, 0), (192, 0), (64, 300), (512, 1000)] {
                let arena = ArenaLayout { bytes, ..ArenaLayout::default() };
                let found = Places::new(&program, &arena, &module, &[scratch, 0], 0).expect("fits");
                assert_eq!(found.constants, constants);
                assert_eq!(bytes + found.beside + found.constants, found.all, "{bytes} {scratch}");
                assert_eq!(found.filled(&program).len() as u64, constants);
                // Twelve bytes of the temporary come after the arena, then scratch.
                let after = (bytes.next_multiple_of(ALIGN) + 12).max(bytes);
                assert!(found.all >= after + scratch, "{}", found.all);
                assert!(found.all < after + scratch + 3 * ALIGN, "{}", found.all);
            }
        }
    }
}
