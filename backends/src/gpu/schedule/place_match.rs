//! Comparisons of a place in a row with a number of the row, as a one-hot label makes them. They hold at one place at most,
//! so that all elements that threads compute together are tested at once, and most are computed without them.

use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::{Operand, Param, Stage};
use adfuse_ir::scalar::{Prim, SInst, SOp, SVal, ScalarProgram};
use adfuse_ir::{DType, Literal};

/// The comparisons of a stage's coordinate with one parameter.
pub(crate) struct PlaceMatch {
    /// The parameter: an integer that is loaded once for the row.
    pub(crate) param: usize,
    tests: Vec<SVal>,
}

impl PlaceMatch {
    /// The comparisons with the first such parameter of a stage of a kernel whose domain has this many axes.
    pub(crate) fn of(stage: &Stage, rank: usize) -> Option<PlaceMatch> {
        if stage.axes.len() != 1 {
            return None;
        }
        let program = &stage.program;
        let live = program.live();
        let mut found: Option<PlaceMatch> = None;
        for (v, inst) in program.insts.iter().filter(|(v, _)| live[v.as_u32() as usize]) {
            let Some(param) = compared(stage, rank, inst) else { continue };
            let all = found.get_or_insert(PlaceMatch { param, tests: Vec::new() });
            if all.param == param {
                all.tests.push(v);
            }
        }
        found
    }

    /// What is computed at places where none of them holds.
    pub(crate) fn without(&self, program: &ScalarProgram) -> ScalarProgram {
        let mut result = ScalarProgram { params: program.params.clone(), ..Default::default() };
        let mut map: Vec<SVal> = Vec::with_capacity(program.insts.len());
        let no = Literal::zero(DType::Bool);
        for (v, inst) in program.insts.iter() {
            let args = inst.args.iter().map(|a| map[a.as_u32() as usize]).collect();
            let other = SInst { args, ..inst.clone() };
            let of = match (self.tests.contains(&v), other.op, other.args.as_slice()) {
                (true, ..) => {
                    let op = SOp::Const(no);
                    result.insts.push(SInst { op, args: Default::default(), dtype: DType::Bool })
                }
                (_, SOp::Prim(Prim::Select), &[test, _, other])
                    if result.constant(test) == Some(no) =>
                {
                    other
                }
                _ => result.insts.push(other),
            };
            map.push(of);
        }
        result.outputs = program.outputs.iter().map(|o| map[o.as_u32() as usize]).collect();
        result
    }
}

/// The parameter with which an instruction compares the coordinate of a row's element; `None` for any other.
fn compared(stage: &Stage, rank: usize, inst: &SInst) -> Option<usize> {
    let program = &stage.program;
    let (SOp::Prim(Prim::Eq), &[a, b]) = (inst.op, inst.args.as_slice()) else { return None };
    let parameter = |v: SVal| match program.insts[v].op {
        SOp::Param(k) => Some(k as usize),
        _ => None,
    };
    // Coordinates fit all wide integers.
    let place = |v: SVal| {
        let of = &program.insts[v];
        let wide = matches!(of.dtype, DType::I32 | DType::I64);
        let from = match of.op {
            SOp::Prim(Prim::Convert) if wide => *of.args.first()?,
            _ => v,
        };
        let coordinate = Param::Coord(IndexExpr::axis(rank));
        parameter(from).filter(|&k| wide && stage.params[k] == coordinate)
    };
    let of_row = |v: SVal| {
        let fixed = |e: &IndexExpr| {
            let mut data = false;
            super::index::data_of(e, &mut |_| data = true);
            !data && !e.shares(&IndexExpr::axis(rank))
        };
        parameter(v).filter(|&k| match &stage.params[k] {
            Param::Load(pieces) => matches!(pieces.as_slice(), [piece] if piece.guards.is_empty()
                && matches!(piece.from, Operand::Buffer(_))
                && piece.index.iter().all(fixed)),
            _ => false,
        })
    };
    place(a).and(of_row(b)).or_else(|| place(b).and(of_row(a)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use adfuse_ir::kernel::{Step, text::parse};

    #[test]
    fn comparisons_of_labels_are_found() {
        let kernel = |load: &str, place: &str| {
            let text = format!(
                "program @f {{
                  input %x: f32[3, 9]
                  input %l: i32[3]
                  output %y: f32[3, 9]
                  kernel @k [3] {{
                    stage [9] {{
                      p0 = load %x[d0, d1]
                      p1 = coord {place}
                      p2 = load %l[{load}]
                      s0 = param.f32 0
                      s1 = param.i64 1
                      s2 = convert.i32 s1
                      s3 = param.i32 2
                      s4 = eq.bool s3 s2
                      s5 = const.f32 0.0
                      s6 = select.f32 s4 s0 s5
                      %y[d0, d1] = store s6
                    }}
                  }}
                  return %y
                }}"
            );
            let program = parse(&text).unwrap_or_else(|e| panic!("{e:?}"));
            match &program.steps[0] {
                Step::Kernel(kernel) => kernel.stages[0].clone(),
                _ => unreachable!("a kernel"),
            }
        };
        let stage = kernel("d0", "d1");
        let found = PlaceMatch::of(&stage, 1).expect("a label");
        assert_eq!(found.param, 2);
        let without = found.without(&stage.program);
        assert_eq!(without.constant(without.outputs[0]), Some(Literal::zero(DType::F32)));
        assert!(PlaceMatch::of(&kernel("d0", "d1 + 1"), 1).is_none(), "another place");
        assert!(PlaceMatch::of(&kernel("d1", "d1"), 1).is_none(), "a number of the place");
    }
}
