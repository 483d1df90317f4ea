//! The verifier of loop programs: every value is defined once, before its uses and in a block that encloses them, and
//! has the type that they ask for.

use super::fission::INTERLEAVED;
use super::loop_program::{
    GridSteps, GroupRead, GroupShape, GroupWrite, LoopBlock, LoopCond, LoopOp, LoopProgram,
    LoopStmt, LoopVal,
};
use adfuse_ir::DType;
use adfuse_ir::scalar::{SInst, SOp, SVal};

/// Whether a program is well formed; what is wrong otherwise.
pub(crate) fn verify(program: &LoopProgram) -> Result<(), String> {
    if !(program.lanes.is_power_of_two() && program.lanes <= 16) {
        return Err(format!("groups of {} elements", program.lanes));
    }
    let folds = program.writes.iter().any(|w| w.fold().is_some());
    if !(1..=program.lanes).contains(&program.apart) || folds && program.apart < program.lanes {
        return Err(format!("groups of {} elements by {}", program.lanes, program.apart));
    }
    if program.reads.len() != program.body.params.len() {
        return Err("a parameter has no way to be read".into());
    }
    if program.writes.len() != program.body.outputs.len() {
        return Err("an output has no way to be written".into());
    }
    if let Some(v) = program.order.iter().find(|v| v.as_u32() as usize >= program.body.insts.len())
    {
        return Err(format!("{v} is ordered and not in the body"));
    }
    let ends = program.cuts.iter().skip(1).copied().chain([program.order.len() as u32]);
    if program.cuts.iter().zip(ends).any(|(&at, next)| at == 0 || at >= next) {
        return Err("the order is not cut into parts".into());
    }
    let mut v = LoopVerifier { program, types: Vec::new(), visible: Vec::new(), is_known: false };
    v.define(LoopVal::BEGIN, DType::I64)?;
    v.define(LoopVal::END, DType::I64)?;
    v.block(&program.code)
}

struct LoopVerifier<'a> {
    program: &'a LoopProgram,
    /// Of each value, its type, where it is defined.
    types: Vec<Option<DType>>,
    /// Whether a value is defined in a block that is open.
    visible: Vec<bool>,
    /// Whether what does not change along a line is known here.
    is_known: bool,
}

type VerifyResult<T = ()> = Result<T, String>;

impl LoopVerifier<'_> {
    fn define(&mut self, v: LoopVal, d: DType) -> VerifyResult {
        let k = v.0 as usize;
        if self.types.len() <= k {
            self.types.resize(k + 1, None);
            self.visible.resize(k + 1, false);
        }
        if self.types[k].replace(d).is_some() {
            return Err(format!("{v} is defined twice"));
        }
        self.visible[k] = true;
        Ok(())
    }

    fn of(&self, v: LoopVal) -> VerifyResult<DType> {
        let k = v.0 as usize;
        let seen = self.visible.get(k).copied().unwrap_or(false);
        let found = self.types.get(k).copied().flatten().filter(|_| seen);
        found.ok_or_else(|| format!("{v} is not defined here"))
    }

    fn has(&self, v: LoopVal, d: DType) -> VerifyResult {
        match self.of(v)? {
            found if found == d => Ok(()),
            found => Err(format!("{v} is {found}, and {d} is asked for")),
        }
    }

    fn int(&self, v: LoopVal) -> VerifyResult {
        self.has(v, DType::I64)
    }

    fn op(&self, op: &LoopOp) -> VerifyResult<DType> {
        if let LoopOp::Widen(d, v) = *op {
            return self.has(v, d).map(|()| DType::I64);
        }
        op.operands().into_iter().try_for_each(|v| self.int(v))?;
        match *op {
            LoopOp::FloorDiv(_, by) | LoopOp::Rem(_, by) | LoopOp::Div(_, by) if by < 1 => {
                Err(format!("a division by {by}"))
            }
            LoopOp::Tile(k) => self.tile(k as usize).map(|()| DType::I64),
            LoopOp::Literal(l) => Ok(l.dtype()),
            LoopOp::Load(d, _) | LoopOp::LoadBits(d, ..) => Ok(d),
            _ => Ok(DType::I64),
        }
    }

    /// A block; what it defines is visible in it alone.
    fn block(&mut self, block: &LoopBlock) -> VerifyResult {
        block.iter().try_for_each(|s| self.stmt(s))
    }

    fn scope(&mut self, emit: impl FnOnce(&mut Self) -> VerifyResult) -> VerifyResult {
        let (before, known) = (self.visible.clone(), self.is_known);
        emit(self)?;
        self.is_known = known;
        for (k, visible) in self.visible.iter_mut().enumerate() {
            *visible &= before.get(k).copied().unwrap_or(false);
        }
        Ok(())
    }

    fn cond(&self, c: &LoopCond) -> VerifyResult {
        c.operands().into_iter().try_for_each(|v| self.int(v))
    }

    fn stmt(&mut self, s: &LoopStmt) -> VerifyResult {
        match s {
            LoopStmt::Let(v, op) => {
                let d = self.op(op)?;
                self.define(*v, d)
            }
            LoopStmt::If { all, then, otherwise, results } => {
                all.iter().try_for_each(|c| self.cond(c))?;
                let mut types = Vec::new();
                self.scope(|v| {
                    v.block(then)?;
                    results.iter().try_for_each(|&(_, a, _)| v.of(a).map(|d| types.push(d)))
                })?;
                self.scope(|v| {
                    v.block(otherwise)?;
                    results.iter().zip(&types).try_for_each(|(&(_, _, b), &d)| v.has(b, d))
                })?;
                results.iter().zip(types).try_for_each(|(&(r, ..), d)| self.define(r, d))
            }
            LoopStmt::While { carried, below, body, next } => {
                self.int(*below)?;
                if carried.is_empty() || carried.len() != next.len() {
                    return Err("a loop hands on other values than it begins with".into());
                }
                carried.iter().try_for_each(|&(_, begin)| self.int(begin))?;
                carried.iter().try_for_each(|&(now, _)| self.define(now, DType::I64))?;
                self.scope(|v| {
                    v.block(body)?;
                    next.iter().try_for_each(|&n| v.int(n))
                })
            }
            LoopStmt::Groups { last, from, to, shapes, .. } => {
                self.int(*from)?;
                self.int(*to)?;
                if shapes.is_empty() || shapes.iter().any(|s| s.copies == 0 || s.rounds == 0) {
                    return Err("a loop of no groups".into());
                }
                shapes.iter().try_for_each(|s| self.strip(s))?;
                self.groups()?;
                self.define(*last, DType::I64)
            }
            LoopStmt::Line { .. } => self.whole_line(s),
            LoopStmt::Transpose { tile, .. } => self.tile(*tile).and_then(|()| self.named(s)),
            LoopStmt::Partial { .. } => self.named(s).and_then(|()| self.groups()),
            LoopStmt::Invariants { params } => {
                self.is_known = true;
                params.iter().try_for_each(|&(k, v)| self.param(k, v))
            }
            LoopStmt::Element { params, results } => {
                params.iter().try_for_each(|&(k, v)| self.param(k, v))?;
                if !self.is_known || results.len() != self.program.body.outputs.len() {
                    return Err("an element is not what the body computes".into());
                }
                for (k, &r) in results.iter().enumerate() {
                    self.define(r, self.output(k)?)?;
                }
                Ok(())
            }
            LoopStmt::Store { dtype, at, value, .. } => {
                self.int(*at)?;
                self.has(*value, *dtype)
            }
            LoopStmt::StoreBits { dtype, at, shift, value, .. } => {
                self.int(*at)?;
                self.int(*shift)?;
                self.has(*value, *dtype)
            }
            LoopStmt::Combine { output, at, value } => {
                self.int(*at)?;
                self.folded(*output)?;
                self.has(*value, self.output(*output)?)
            }
            LoopStmt::FillColumns { output, .. }
            | LoopStmt::FillLanes { output }
            | LoopStmt::JoinLanes { output, .. } => {
                s.operands().into_iter().try_for_each(|v| self.int(v))?;
                self.folded(*output)
            }
        }
    }

    /// A strip is of a body in parts, and of whole numbers of interleaved groups without idle lanes.
    fn strip(&self, s: &GroupShape) -> VerifyResult {
        let p = self.program;
        let is_alone =
            s.rounds == 1 && !s.held && s.copies.is_power_of_two() && s.copies <= INTERLEAVED;
        let fits = is_alone && s.strip.is_multiple_of(s.copies) && p.apart == p.lanes;
        match s.strip == 0 || fits && !p.cuts.is_empty() {
            true => Ok(()),
            false => Err(format!("a strip of {} groups", s.strip)),
        }
    }

    /// A whole line has groups, and a part for the lanes of each output that has any.
    fn whole_line(&mut self, s: &LoopStmt) -> VerifyResult {
        let LoopStmt::Line { count, copies, joins } = s else { return Ok(()) };
        if *count < 1 || copies.is_empty() || copies.contains(&0) {
            return Err("a line of no groups".into());
        }
        self.named(s)?;
        joins.iter().try_for_each(|(k, _)| self.folded(*k))?;
        let lanes = |(_, w): &(usize, &GroupWrite)| w.fold().is_some_and(|f| f.lanes);
        let mut folded = self.program.writes.iter().enumerate().filter(lanes);
        if let Some((k, _)) = folded.find(|(k, _)| !joins.iter().any(|(j, _)| j == k)) {
            return Err(format!("the lanes of output {k} are not joined"));
        }
        self.groups()
    }

    /// The values that a statement names are integers.
    fn named(&self, s: &LoopStmt) -> VerifyResult {
        s.operands().into_iter().try_for_each(|v| self.int(v))
    }

    fn tile(&self, k: usize) -> VerifyResult {
        if k < self.program.tiles.len() { Ok(()) } else { Err(format!("no tile {k}")) }
    }

    fn output(&self, k: usize) -> VerifyResult<DType> {
        let v = self.program.body.outputs.get(k).ok_or_else(|| format!("no output {k}"))?;
        Ok(self.program.body.insts[*v].dtype)
    }

    fn param(&self, k: usize, v: LoopVal) -> VerifyResult {
        let d = self.program.body.params.get(k).ok_or_else(|| format!("no parameter {k}"))?;
        self.has(v, *d)
    }

    fn folded(&self, k: usize) -> VerifyResult {
        let write = self.program.writes.get(k);
        match write.and_then(GroupWrite::fold) {
            Some(_) => {
                write.map_or(Ok(()), |w| w.values().into_iter().try_for_each(|v| self.int(v)))
            }
            None => Err(format!("output {k} does not fold")),
        }
    }

    /// Every read of a parameter at a place says where, by a number, and where there is something else, whether.
    fn placed(&self, k: usize, guarded: bool) -> VerifyResult {
        let body = &self.program.body;
        let is = |v: &SVal, d: DType| body.insts.get(*v).is_some_and(|i| i.dtype == d);
        let mut all = body.insts.values().filter(|i| i.op == SOp::Param(k as u32));
        let says = |i: &SInst| match i.args.as_slice() {
            [at] => !guarded && is(at, DType::I32),
            [at, holds] => guarded && is(at, DType::I32) && is(holds, DType::Bool),
            _ => false,
        };
        match all.all(says) {
            true => Ok(()),
            false => Err(format!("the body does not say where parameter {k} is read")),
        }
    }

    /// What groups name is known here.
    fn groups(&mut self) -> VerifyResult {
        if !self.is_known {
            return Err("groups before what does not change along a line".into());
        }
        let program = self.program;
        program.group_values().try_for_each(|v| self.int(v))?;
        for (k, read) in program.reads.iter().enumerate() {
            match read {
                GroupRead::Element => return Err(format!("groups do not read parameter {k}")),
                GroupRead::Grid { steps, guards, rest, .. } => {
                    let mut all = guards.iter().map(|g| &g.steps).chain([steps]);
                    let divides = |s: &GridSteps| {
                        s.inner.iter().all(|(n, _)| *n > 0)
                            && i64::from(program.apart) % s.within() == 0
                    };
                    let d = program.body.params[k];
                    let fits = rest.map_or(guards.is_empty(), |l| l.dtype() == d);
                    if !all.all(divides) || d.bytes() != 4 || !fits {
                        return Err(format!("parameter {k} is no grid"));
                    }
                }
                GroupRead::Placed { rest, .. } => self.placed(k, rest.is_some())?,
                GroupRead::Bits { .. } if program.body.params[k] != DType::Bool => {
                    return Err(format!("parameter {k} is no truth value"));
                }
                GroupRead::Lanes { at, block, value } => {
                    // The block is wherever groups are.
                    let (types, visible) = (self.types.clone(), self.visible.clone());
                    self.define(*at, DType::I64)?;
                    self.block(block)?;
                    self.param(k, *value)?;
                    (self.types, self.visible) = (types, visible);
                }
                _ => {}
            }
        }
        match program.writes.iter().position(|w| *w == GroupWrite::Element) {
            Some(k) => Err(format!("groups do not write output {k}")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::codegen::loop_parser::parse;

    /// A sum of lines, of groups of eight.
    const SUM: &str = "\
groups of 8
body {
s0 = param.f32 0
return s0
}
order s0
p0 f32 even v3 step 1
o0 columns sum f32 v4
code {
  while v2 v0 below v1 {
    v3 = pointer 0
    v4 = pointer 1
    v5 = int 8
    invariants
    v6 = rem v2 64
    if zero v6 {
      fill_columns o0 v2 count v5
    } else {
      v7 = add v2 v5
    } gives
    groups v8 from v2 to v1 by 4 1 by 1 1
    partial v8 count v5
    v9 = add v2 v5
  } next v9
}
";

    #[test]
    fn programs_read_back() {
        let program = parse(SUM).expect("a program");
        assert_eq!(program.to_string(), SUM);
        assert_eq!(verify(&program), Ok(()));
    }

    #[test]
    fn grids_read_back() {
        let grid =
            "grid v3 step 4 axis 2 step 9 where v5 step 1 axis 2 step 0 within -1 4 else f32 0.0";
        let text = SUM.replacen("even v3 step 1", grid, 1);
        let program = parse(&text).expect("a program");
        assert_eq!(program.to_string(), text);
        assert_eq!(verify(&program), Ok(()));
    }

    #[test]
    fn places_are_said_by_the_body() {
        let body = "s0 = const.i32 3\ns1 = const.bool true\ns2 = param.f32 0 s0 s1\nreturn s2\n}\norder s2\n";
        let text = SUM.replacen("s0 = param.f32 0\nreturn s0\n}\norder s0\n", body, 1);
        let text = text.replacen("even v3 step 1", "placed v3 else f32 0.5", 1);
        let program = parse(&text).expect("a program");
        assert_eq!(program.to_string(), text);
        assert_eq!(verify(&program), Ok(()));
        for (from, to) in [
            ("param.f32 0 s0 s1", "param.f32 0"),
            ("param.f32 0 s0 s1", "param.f32 0 s0"),
            ("param.f32 0 s0 s1", "param.f32 0 s1 s0"),
            ("placed v3 else f32 0.5", "placed v3"),
        ] {
            let wrong = text.replacen(from, to, 1);
            let found = verify(&parse(&wrong).expect("a program")).expect_err(to);
            assert!(found.contains("does not say where parameter 0"), "{to}: {found}");
        }
    }

    #[test]
    fn tiles_read_back() {
        let tile = "t0 f32 20 step 100\n";
        let fill = "v5 = int 8\n    v10 = tile 0\n    transpose t0 v3 lines v5\n";
        let text = SUM.replacen("code {\n", &format!("{tile}code {{\n"), 1);
        let text = text.replacen("v5 = int 8\n", fill, 1);
        let program = parse(&text).expect("a program");
        assert_eq!(program.to_string(), text);
        assert_eq!(verify(&program), Ok(()));
        for without in ["    v10 = tile 0\n", "    transpose t0 v3 lines v5\n"] {
            let text = text.replacen(tile, "", 1).replacen(without, "", 1);
            assert_eq!(verify(&parse(&text).expect("a program")), Err("no tile 0".into()));
        }
    }

    #[test]
    fn whole_lines_read_back() {
        let text = SUM.replacen("partial v8 count v5", "line 20 by 2 1", 1);
        assert_eq!(parse(&text).expect("a program").to_string(), text);
        assert_eq!(verify(&parse(&text).expect("a program")), Ok(()));
        // Lanes have a part each.
        let lanes = text.replacen("o0 columns sum f32 v4", "o0 lanes sum f32 v4 place v5", 1);
        let found = verify(&parse(&lanes).expect("a program"));
        assert_eq!(found, Err("the lanes of output 0 are not joined".into()));
        let joined = lanes.replacen("by 2 1\n", "by 2 1 join o0 v3\n", 1);
        assert_eq!(parse(&joined).expect("a program").to_string(), joined);
        assert_eq!(verify(&parse(&joined).expect("a program")), Ok(()));
        for none in ["line 0 by 1", "line 20 by", "line 20 by 0"] {
            let program = parse(&text.replacen("line 20 by 2 1", none, 1)).expect("a program");
            assert_eq!(verify(&program), Err("a line of no groups".into()), "{none}");
        }
    }

    #[test]
    fn parts_read_back() {
        let text = SUM.replacen("order s0", "order s0 | s0", 1);
        let text = text.replacen("by 4 1 by 1 1", "strip 8 by 4 1 by 1 1", 1);
        let program = parse(&text).expect("a program");
        assert_eq!(program.to_string(), text);
        assert_eq!(verify(&program), Ok(()));
        for wrong in [
            "strip 6 by 4 1",
            "strip 8 by 8 1",
            "strip 8 by 4 2",
            "strip 3 by 3 1",
            "strip 8 held 4 1",
        ] {
            let program = parse(&text.replacen("strip 8 by 4 1", wrong, 1)).expect("a program");
            let found = verify(&program).expect_err(wrong);
            assert!(found.contains("a strip of"), "{wrong}: {found}");
        }
    }

    #[test]
    fn what_is_wrong_is_refused() {
        for (from, to, said) in [
            ("groups of 8", "groups of 12", "groups of 12 elements"),
            ("v5 = int 8", "v10 = int 8", "v5 is not defined here"),
            ("next v9", "next v7", "v7 is not defined here"),
            ("next v9", "next v9 v9", "hands on other values"),
            ("v6 = rem v2 64", "v6 = rem v2 0", "a division by 0"),
            ("v6 = rem v2 64", "v5 = rem v2 64", "v5 is defined twice"),
            ("v5 = int 8", "v5 = literal f32 8.0", "v5 is f32, and i64 is asked for"),
            ("    invariants\n", "", "before what does not change"),
            ("by 4 1 by 1 1", "by 0 1", "a loop of no groups"),
            ("by 4 1 by 1 1", "", "a loop of no groups"),
            ("o0 columns sum f32 v4", "o0 element", "output 0 does not fold"),
            ("p0 f32 even v3 step 1", "p0 f32 element", "groups do not read parameter 0"),
            ("p0 f32 even v3 step 1", "p0 f32 even v9 step 1", "v9 is not defined here"),
            ("order s0", "order s1", "s1 is ordered"),
            ("order s0", "order | s0", "not cut into parts"),
            ("order s0", "order s0 | s0 | s1", "s1 is ordered"),
            ("by 4 1 by 1 1", "strip 8 by 4 1", "a strip of 8 groups"),
            ("even v3 step 1", "grid v3 step 4 axis 3 step 1", "parameter 0 is no grid"),
            (
                "even v3 step 1",
                "grid v3 step 4 where v5 step 1 within 0 4",
                "parameter 0 is no grid",
            ),
        ] {
            let text = SUM.replacen(from, to, 1);
            assert_ne!(text, SUM, "{from}");
            let program = parse(&text).unwrap_or_else(|m| panic!("{to}: {m}"));
            let found = verify(&program).expect_err(to);
            assert!(found.contains(said), "{to}: {found}");
        }
    }

    #[test]
    fn texts_that_are_no_program_name_the_line() {
        for (from, to, said) in [
            ("rem v2 64", "rem v2 x", "line 15: a number is expected, and there is x"),
            ("rem v2 64", "rest v2 64", "line 15: no operation rest"),
            ("partial v8", "whole v8", "line 22: no statement whole"),
            ("even v3", "odd v3", "line 7: parameters are not read so: odd"),
            ("} next v9\n}\n", "} next v9\n", "the text ends too early"),
        ] {
            let text = SUM.replacen(from, to, 1);
            let found = parse(&text).expect_err(to);
            assert!(found.contains(said), "{to}: {found}");
        }
    }
}
