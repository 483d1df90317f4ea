//! Single elements: parameters through guards, the body at one coordinate, and stores.

use super::loop_ir::{Access, FormRanges, GuardedSource, LoadSource, ParamRead};
use super::loop_program::{LoopCond, LoopOp, LoopStmt, LoopVal};
use super::program_builder::ProgramBuilder;

impl ProgramBuilder<'_> {
    /// What says that all guards hold at a coordinate.
    pub(crate) fn guards(
        &mut self,
        guards: &FormRanges,
        inner: Option<LoopVal>,
        params: &[Option<LoopVal>],
    ) -> Vec<LoopCond> {
        let mut all = Vec::new();
        for (form, range) in guards {
            let value = self.form(*form, inner, params);
            let length = range.end.saturating_sub(range.start).max(0);
            all.push(LoopCond::Within(value, range.start, length));
        }
        all
    }

    /// The address of an element that is not packed.
    fn address(
        &mut self,
        a: &Access,
        inner: Option<LoopVal>,
        params: &[Option<LoopVal>],
    ) -> LoopVal {
        let bytes = a.dtype.bytes() as i64;
        if self.p.affine(a.form) {
            let start = self.pointer(a.at, a.form, bytes);
            return match inner {
                Some(at) => {
                    let along = self.mul(at, self.p.step(a.form).wrapping_mul(bytes));
                    self.add(start, along)
                }
                None => start,
            };
        }
        let element = self.form(a.form, inner, params);
        let (base, offset) = (self.op(LoopOp::Pointer(a.at)), self.mul(element, bytes));
        self.add(base, offset)
    }

    /// The byte of a packed element, and the place of its lowest bit there.
    fn packed_place(
        &mut self,
        a: &Access,
        bits: u8,
        inner: Option<LoopVal>,
        params: &[Option<LoopVal>],
    ) -> (LoopVal, LoopVal) {
        let element = self.form(a.form, inner, params);
        let bit = self.mul(element, bits.into());
        let base = self.op(LoopOp::Pointer(a.at));
        let byte = self.div(bit, 8);
        (self.add(base, byte), self.rem(bit, 8))
    }

    fn load(&mut self, a: &Access, inner: Option<LoopVal>, params: &[Option<LoopVal>]) -> LoopVal {
        match a.packed {
            Some(bits) => {
                let (at, shift) = self.packed_place(a, bits, inner, params);
                self.op(LoopOp::LoadBits(a.dtype, bits, at, shift))
            }
            None => {
                let at = self.address(a, inner, params);
                self.op(LoopOp::Load(a.dtype, at))
            }
        }
    }

    fn sources(
        &mut self,
        sources: &[GuardedSource],
        inner: Option<LoopVal>,
        params: &[Option<LoopVal>],
    ) -> LoopVal {
        let Some((first, others)) = sources.split_first() else { return self.int(0) };
        let source = |b: &mut Self| match &first.from {
            LoadSource::Literal(l) => b.literal(*l),
            LoadSource::Array(a) => b.load(a, inner, params),
        };
        // The last source is read wherever no other is.
        if first.guards.is_empty() || others.is_empty() {
            return source(self);
        }
        let all = self.guards(&first.guards, inner, params);
        let [found] = self.choose(all, |b| [source(b)], |b| [b.sources(others, inner, params)]);
        found
    }

    /// A parameter at a coordinate: through the first source whose guards hold. Nothing is loaded where they do not.
    pub(crate) fn read(
        &mut self,
        k: usize,
        inner: Option<LoopVal>,
        params: &[Option<LoopVal>],
    ) -> LoopVal {
        let p = self.p;
        if let (Some((pointer, along)), Some(at)) =
            (self.line.chosen.get(k).copied().flatten(), inner)
        {
            let dtype = p.types[k];
            let along = self.op(LoopOp::And(at, along));
            let offset = self.mul(along, dtype.bytes() as i64);
            let address = self.add(pointer, offset);
            return self.op(LoopOp::Load(dtype, address));
        }
        match &p.reads[k] {
            ParamRead::Coord(form) => self.form(*form, inner, params),
            ParamRead::Guarded(sources) => self.sources(sources, inner, params),
        }
    }

    /// One element: parameters, body, outputs.
    pub(crate) fn element(&mut self, at: LoopVal) {
        let p = self.p;
        let mut params = self.line.params.clone();
        for k in 0..p.reads.len() {
            if p.varies[k] {
                params[k] = Some(self.read(k, Some(at), &params));
            }
        }
        let moving = params.iter().enumerate().filter(|(k, _)| p.varies[*k]);
        let moving = moving.filter_map(|(k, v)| Some((k, (*v)?))).collect();
        let results: Vec<LoopVal> = p.writes.iter().map(|_| self.fresh()).collect();
        self.push(LoopStmt::Element { params: moving, results: results.clone() });
        for (output, (a, &value)) in p.writes.iter().zip(&results).enumerate() {
            match &p.folds[output] {
                Some(fold) => {
                    let at = self.folded_at(output, fold, at);
                    self.push(LoopStmt::Combine { output, at, value });
                }
                None => self.store(a, value, at, &params),
            }
        }
        let Some((form, guards, places)) = &p.target else { return };
        let all = self.guards(guards, Some(at), &params);
        let [place] = match all.is_empty() {
            true => [self.form(*form, Some(at), &params)],
            false => self.choose(all, |b| [b.form(*form, Some(at), &params)], |b| [b.int(-1)]),
        };
        self.store(places, place, at, &params);
    }

    fn store(&mut self, a: &Access, value: LoopVal, at: LoopVal, params: &[Option<LoopVal>]) {
        let dtype = a.dtype;
        if let Some(bits) = a.packed {
            let (at, shift) = self.packed_place(a, bits, Some(at), params);
            self.push(LoopStmt::StoreBits { dtype, bits, at, shift, value });
            return;
        }
        let at = self.address(a, Some(at), params);
        self.push(LoopStmt::Store { dtype, canonical: a.is_canonical(), at, value });
    }

    /// What lanes of a group read one at a time: a block for a coordinate.
    pub(crate) fn lane_block(&mut self, k: usize) -> super::loop_program::GroupRead {
        let p = self.p;
        let at = self.fresh();
        let (block, value) = self.block(|b| {
            let mut params = b.line.params.clone();
            for &j in &p.needs[k] {
                params[j] = Some(b.read(j, Some(at), &params));
            }
            b.read(k, Some(at), &params)
        });
        super::loop_program::GroupRead::Lanes { at, block, value }
    }
}
