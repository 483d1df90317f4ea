//! Sums, differences and products of 16-bit floats of two elements at a time.
//!
//! An op on 16-bit floats is computed in `f32` and rounded. For a sum, a difference and a product of two that gives what is
//! rounded once: 24 bits are at least twice the bits of the type and two more (11 of `f16`, 8 of `bf16`), and a result below the
//! normal numbers is exact in `f32` or is 0 both ways. So instructions on pairs, which round once, have the same bits.

use super::asm::{Asm, Class, Reg, listed};
use super::isel::{InstArgs, instruction, outputs};
use super::operands::constant;
use adfuse_ir::scalar::{Prim, SInst, SOp, SVal, ScalarProgram};
use adfuse_ir::{DType, Literal};

/// Which instructions of a program are those of pairs.
pub(super) struct PairedProgram<'p> {
    program: &'p ScalarProgram,
    /// For each value that is rounded from a sum, a difference or a product: that.
    packed: Vec<Option<PackedInst>>,
    /// Whether an output depends on it.
    live: Vec<bool>,
}

/// An instruction on pairs of 16-bit floats.
struct PackedInst {
    name: &'static str,
    args: [PackedArg; 2],
}

/// An operand of one.
#[derive(Clone, Copy)]
enum PackedArg {
    Value(SVal),
    Constant(Literal),
}

/// What is known of a value of two elements: its registers, its pair, or both.
#[derive(Clone, Copy, Default)]
struct Twice {
    each: Option<[Reg; 2]>,
    pair: Option<Reg>,
}

impl Asm {
    /// A program by pairs of elements, where the chip has instructions for them and the program has sums, differences or
    /// products of 16-bit floats.
    pub(super) fn paired<'p>(&self, program: &'p ScalarProgram) -> Option<PairedProgram<'p>> {
        self.pairs.then(|| PairedProgram::of(program)).flatten()
    }
}

impl<'p> PairedProgram<'p> {
    /// The outputs for several elements, whose parameters are in these registers. The last of an odd number is computed by itself.
    pub(super) fn outputs_of(
        &self,
        asm: &mut Asm,
        elements: &[&Vec<Option<Reg>>],
    ) -> Vec<Vec<Reg>> {
        let mut found = Vec::new();
        for some in elements.chunks(2) {
            match some {
                [low, high] => found.extend(self.outputs(asm, [low, high])),
                rest => found.extend(rest.iter().map(|one| outputs(asm, self.program, one))),
            }
        }
        found
    }

    /// `None` where nothing is an instruction of pairs.
    fn of(program: &'p ScalarProgram) -> Option<PairedProgram<'p>> {
        let mut uses = vec![0; program.insts.len()];
        for (inst, _) in program.insts.values().zip(program.live()).filter(|(_, live)| *live) {
            inst.args.iter().for_each(|a| uses[a.as_u32() as usize] += 1);
        }
        program.outputs.iter().for_each(|o| uses[o.as_u32() as usize] += 1);
        let packed: Vec<Option<PackedInst>> =
            program.insts.values().map(|inst| PackedInst::of(program, inst, &uses)).collect();
        let mut live = vec![false; program.insts.len()];
        program.outputs.iter().for_each(|o| live[o.as_u32() as usize] = true);
        let mut any = false;
        for (v, inst) in program.insts.iter().rev() {
            let v = v.as_u32() as usize;
            if !live[v] {
                continue;
            }
            let mut needed = |a: SVal| live[a.as_u32() as usize] = true;
            match &packed[v] {
                Some(packed) => {
                    any = true;
                    packed.args.iter().for_each(|arg| match *arg {
                        PackedArg::Value(a) => needed(a),
                        PackedArg::Constant(_) => {}
                    });
                }
                None => inst.args.iter().for_each(|&a| needed(a)),
            }
        }
        any.then_some(PairedProgram { program, packed, live })
    }

    /// The outputs for two elements.
    fn outputs(&self, asm: &mut Asm, params: [&Vec<Option<Reg>>; 2]) -> [Vec<Reg>; 2] {
        let program = self.program;
        let mut values: Vec<Twice> = Vec::with_capacity(program.insts.len());
        for (v, inst) in program.insts.iter() {
            let n = v.as_u32() as usize;
            let value = match &self.packed[n] {
                _ if !self.live[n] => Twice::default(),
                Some(packed) => {
                    let pairs = packed.args.map(|arg| arg.pair(asm, &mut values));
                    let [Some(a), Some(b)] = pairs else {
                        values.push(Twice::default());
                        continue;
                    };
                    let args = format_args!("{a}, {b}").to_string();
                    let pair = Some(asm.pure(Class::Word, packed.name, args));
                    Twice { each: None, pair }
                }
                None => Twice { each: self.each(asm, inst, &mut values, params), pair: None },
            };
            values.push(value);
        }
        let mut found = [Vec::new(), Vec::new()];
        for o in &program.outputs {
            if let Some(each) = values[o.as_u32() as usize].each(asm) {
                found.iter_mut().zip(each).for_each(|(list, value)| list.push(value));
            }
        }
        found
    }

    /// An instruction for one element and then for the other.
    fn each(
        &self,
        asm: &mut Asm,
        inst: &SInst,
        values: &mut [Twice],
        params: [&Vec<Option<Reg>>; 2],
    ) -> Option<[Reg; 2]> {
        let known = inst.args.iter().map(|a| values[a.as_u32() as usize].each(asm));
        let known: Vec<Option<[Reg; 2]>> = known.collect();
        let mut of = |side: usize| {
            let args: InstArgs = known.iter().filter_map(|each| each.map(|e| e[side])).collect();
            instruction(asm, self.program, inst, &args, params[side])
        };
        Some([of(0)?, of(1)?])
    }
}

impl PackedInst {
    fn of(program: &ScalarProgram, inst: &SInst, uses: &[usize]) -> Option<PackedInst> {
        let dtype = inst.dtype;
        let (SOp::Prim(Prim::Convert), [wide]) = (&inst.op, inst.args.as_slice()) else {
            return None;
        };
        let of = &program.insts[*wide];
        if of.dtype != DType::F32 || uses[wide.as_u32() as usize] != 1 {
            return None;
        }
        let name = match (&of.op, dtype) {
            (SOp::Prim(Prim::Add), DType::BF16) => "add.rn.bf16x2",
            (SOp::Prim(Prim::Sub), DType::BF16) => "sub.rn.bf16x2",
            (SOp::Prim(Prim::Mul), DType::BF16) => "mul.rn.bf16x2",
            (SOp::Prim(Prim::Add), DType::F16) => "add.rn.f16x2",
            (SOp::Prim(Prim::Sub), DType::F16) => "sub.rn.f16x2",
            (SOp::Prim(Prim::Mul), DType::F16) => "mul.rn.f16x2",
            _ => return None,
        };
        let &[a, b] = of.args.as_slice() else { return None };
        let arg = |v| PackedArg::of(program, v, dtype);
        let args = [arg(a)?, arg(b)?];
        // One of constants alone is computed once for all elements.
        let varies = args.iter().any(|arg| matches!(arg, PackedArg::Value(_)));
        varies.then_some(PackedInst { name, args })
    }
}

impl PackedArg {
    /// What an `f32` was widened from, or the number of 16 bits that a constant is.
    fn of(program: &ScalarProgram, wide: SVal, dtype: DType) -> Option<PackedArg> {
        let inst = &program.insts[wide];
        match (&inst.op, inst.args.as_slice()) {
            (SOp::Prim(Prim::Convert), &[from]) if program.insts[from].dtype == dtype => {
                Some(program.constant(from).map_or(PackedArg::Value(from), PackedArg::Constant))
            }
            (SOp::Const(c), _) => {
                let narrow = c.convert(dtype);
                (narrow.convert(DType::F32) == *c).then_some(PackedArg::Constant(narrow))
            }
            _ => None,
        }
    }

    fn pair(self, asm: &mut Asm, values: &mut [Twice]) -> Option<Reg> {
        match self {
            PackedArg::Constant(c) => {
                let half = constant(asm, c);
                Some(packed(asm, [half, half]))
            }
            PackedArg::Value(v) => values[v.as_u32() as usize].pair(asm),
        }
    }
}

impl Twice {
    fn each(&mut self, asm: &mut Asm) -> Option<[Reg; 2]> {
        if let (None, Some(pair)) = (self.each, self.pair) {
            let halves = asm.pure_row(Class::Half, 2, "mov.b32", pair);
            self.each = halves.try_into().ok();
        }
        self.each
    }

    fn pair(&mut self, asm: &mut Asm) -> Option<Reg> {
        if let (None, Some(each)) = (self.pair, self.each) {
            self.pair = Some(packed(asm, each));
        }
        self.pair
    }
}

fn packed(asm: &mut Asm, halves: [Reg; 2]) -> Reg {
    asm.pure(Class::Word, "mov.b32", listed(&halves))
}
