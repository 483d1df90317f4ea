//! Views with several results become one view for each result, so that each is planned alone.

use adfuse_ir::attrs::Attrs;
use adfuse_ir::op::Body;
use adfuse_ir::rewrite::{Exactness, Pattern, Reads, Rule, RuleTable, Site, When, rewrite};
use adfuse_ir::{Diagnostic, Function, Op, Value};

/// Views with several results become a view for each.
pub(crate) fn multi_result_views(f: &Function) -> Result<Function, Diagnostic> {
    Ok(rewrite(f, &SEVERAL_RESULTS, Exactness::Exact)?.0)
}

/// Views with several results become a view for each.
pub(crate) static SEVERAL_RESULTS: RuleTable = RuleTable {
    name: "one result a view",
    doc: "Before planning, once calls are inlined.",
    reads: Reads::Source,
    regions: false,
    rules: &[Rule {
        name: "split-as-slices",
        doc: "A view with several results becomes a slice for each.",
        exactness: Exactness::Exact,
        pattern: Pattern::Class(|body| matches!(body, Body::View(_))),
        then: &When {
            condition: |m| (m.f.inst_results(m.root.inst).len() > 1).then_some(()),
            build: slices,
        },
    }],
};

fn slices(s: &mut Site<'_, '_>, (): ()) -> Vec<Value> {
    let (f, i) = (s.f, s.root.inst);
    let from = f.args(i)[0];
    let x = s.get(from);
    let axis = f.attrs(i).int("axis");
    let mut start = 0;
    let slice = |(&v, &size): (&Value, &i64)| {
        let rank = f.ty(v).rank() as i64;
        let mut limit = s.b.extents(f.ty(from));
        limit[axis as usize] = (start + size) as u64;
        let along = |d: i64| if d == axis { start } else { 0 };
        let attrs = Attrs::none()
            .with_ints("start", (0..rank).map(along))
            .with_ints("limit", limit.iter().map(|&n| n as i64))
            .with_ints("stride", (0..rank).map(|_| 1));
        start += size;
        s.b.op_with(Op::Slice, &[x], attrs)
    };
    f.inst_results(i).iter().zip(f.attrs(i).ints("sizes")).map(slice).collect()
}
