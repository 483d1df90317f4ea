//! Every scalar primitive on every element type, with vectors of every width: the bits of the interpreter, and the list
//! of primitives that the x86 emitter does not support.

use super::{layout, same_on, special, strict};
use adfuse::backends::Array;
use adfuse::backends::cpu::{CpuExecutable, CpuOptions, Vectors};
use adfuse::fusion::Effort;
use adfuse::ir::DType;
use adfuse::ir::kernel::text::parse as read;
use adfuse::ir::kernel::{Program, Verified, verify};
use adfuse::ir::scalar::Prim;
use adfuse::ir::text::parse;

/// What is left to Cranelift, by the widths that leave it, each for the reason beside it.
const LEFT: [(&str, &str, &[u32]); 7] = [
    ("rem.f64 of f64", "AVX2 does not scale by exponents", &[256]),
    ("convert.i64 of f64", "AVX2 has no integers of 64 bits beside floats", &[256]),
    ("convert.i64 of f32", "AVX2 has no integers of 64 bits beside floats", &[256]),
    ("convert.i64 of bf16", "AVX2 has no integers of 64 bits beside floats", &[256]),
    ("convert.i64 of f16", "AVX2 has no integers of 64 bits beside floats", &[256]),
    ("convert.f32 of i64", "two roundings would not be one", &[256]),
    ("bitcast.bool of bool", "nothing makes one", &[256, 512]),
];

/// The bits of another float of 16 bits may be a NaN that is not the canonical one, which engines keep and
/// the evaluator does not. No op makes such a bit cast.
const OTHER_BITS: [&str; 2] = ["bitcast.f16 of bf16", "bitcast.bf16 of f16"];

/// Element types in the order of their table.
fn types() -> impl Iterator<Item = DType> {
    DType::ALL.into_iter().filter(|&d| d != DType::Token)
}

/// A primitive with the types of its operands and its result, as text has them.
struct Case {
    name: String,
    /// The operation and its type.
    head: String,
    params: Vec<DType>,
    result: DType,
}

impl Case {
    fn new(p: Prim, from: DType, result: DType) -> Case {
        let name = match p {
            Prim::Lookup(table) => format!("lookup.{result} {table:?}"),
            _ => format!("{p:?}.{result}").to_lowercase(),
        };
        let mut params = vec![from; p.arity()];
        if p == Prim::Select {
            params[0] = DType::Bool;
        }
        Case { name: format!("{name} of {from}"), head: name, params, result }
    }

    /// All that the verifier accepts.
    fn all() -> Vec<Case> {
        let mut cases = Vec::new();
        for &p in Prim::ALL {
            for from in types() {
                let cases_of = types().map(|to| Case::new(p, from, to));
                cases.extend(cases_of.filter(|c| c.program(1, None).is_some()));
            }
        }
        cases
    }

    /// The program of it over this many elements, the last operand a constant if one is given; none where the
    /// primitive is not defined so.
    fn program(&self, n: u64, constant: Option<&str>) -> Option<Verified<Program>> {
        let [mut inputs, mut loads, mut values, mut names] = [(); 4].map(|()| String::new());
        for (k, d) in self.params.iter().enumerate() {
            inputs += &format!("input %x{k}: {d}[{n}]\n");
            loads += &format!("p{k} = load %x{k}[d0]\n");
            values += &match constant.filter(|_| k + 1 == self.params.len()) {
                Some(c) => format!("s{k} = const.{d} {c}\n"),
                None => format!("s{k} = param.{d} {k}\n"),
            };
            names += &format!(" s{k}");
        }
        let (last, head, result) = (self.params.len(), &self.head, self.result);
        let text = format!(
            "program @p {{
               {inputs}output %r: {result}[{n}]
               kernel @k [{n}] {{
                 stage [] {{
                   {loads}{values}s{last} = {head}{names}
                   %r[d0] = store s{last}
                 }}
               }}
               return %r
             }}"
        );
        verify(read(&text).ok()?).ok()
    }
}

/// Of each operand, what its type has of the unusual, and small numbers for what counts.
fn operands(case: &Case, n: u64, turn: usize) -> Vec<Array> {
    let one = |(k, &d): (usize, &DType)| {
        let turn = turn * 3 + k;
        if turn % 4 == 3 && d.is_int() {
            let small: Vec<u64> =
                (0..n).map(|i| (i * 5 + k as u64) % (d.bits() as u64 + 2)).collect();
            return Array::from_bits(d, &[n], &small).expect("fits");
        }
        special(d, &[n], turn)
    };
    case.params.iter().enumerate().map(one).collect()
}

#[test]
fn every_primitive_has_the_bits_of_the_interpreter() {
    let cases = Case::all();
    assert!(cases.len() > 300, "{} primitives", cases.len());
    for case in cases.iter().filter(|c| !OTHER_BITS.contains(&c.name.as_str())) {
        // Partial groups alone, and after whole ones, one and several.
        for n in [1, 7, 67, 131] {
            agree(case, &case.program(n, None).expect("is defined"), n, 6, "");
        }
        if case.params.len() < 2 {
            continue;
        }
        for constant in
            ["0", "1", "-1", "3", "31", "200", "0.0", "-0.0", "1.5", "inf", "nan", "true"]
        {
            if let Some(program) = case.program(131, Some(constant)) {
                agree(case, &program, 131, 3, constant);
            }
        }
    }
}

/// A program of a case agrees on several lists of operands; it is compiled once a width.
fn agree(case: &Case, program: &Verified<Program>, n: u64, turns: usize, constant: &str) {
    let all: Vec<Vec<Array>> = (0..turns).map(|turn| operands(case, n, turn)).collect();
    let agreed =
        layout(program, Effort::Default).and_then(|layout| same_on(program, &layout, &all));
    if let Err(why) = agreed {
        panic!("{} {constant}: {}", case.name, &why[..why.len().min(3000)]);
    }
}

/// Primitives are emitted or listed by name; what is listed and emitted after all fails too.
#[test]
fn what_is_left_to_cranelift_is_listed() {
    let widths = Vectors::ALL.into_iter();
    for vectors in widths.filter(|&v| v > Vectors::Narrow && v <= Vectors::host()) {
        let mut left = Vec::new();
        for case in Case::all() {
            let program = case.program(67, None).expect("is defined");
            let layout = layout(&program, Effort::Default).expect("fits");
            let options = CpuOptions { vectors, ..strict() };
            let made = CpuExecutable::compile_listed(&program, &layout, options).expect("compiles");
            if made.sweeps().any(|s| s.emitter.why().is_some()) {
                left.push(case.name);
            }
        }
        let bits = vectors.bits();
        let listed = LEFT.iter().filter(|(_, _, widths)| widths.contains(&bits));
        let mut listed: Vec<&str> = listed.map(|(name, _, _)| *name).collect();
        listed.sort_unstable();
        left.sort_unstable();
        assert_eq!(left, listed, "with vectors of {bits} bits");
    }
}

/// Quotients of all sizes, up to that of the largest number and the least: what is left is exact, with the sign of the dividend.
#[test]
fn remainders_over_all_exponents() {
    for dtype in ["f32", "f64"] {
        let text = format!(
            "func @f(%x: {dtype}[4001], %y: {dtype}[4001]) -> {dtype}[4001] {{ %r = rem %x, %y : {dtype}[4001] return %r }}"
        );
        let module = parse(&text).expect("a program");
        let f = module.funcs.values().next().expect("a function");
        let mut bits = 0x9e37_79b9_7f4a_7c15u64;
        let mut number = || {
            bits = bits.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            f64::from_bits(bits ^ bits >> 29)
        };
        let special =
            [0.0, -0.0, f64::MAX, 5e-324, -f64::MIN_POSITIVE, 1.0, f64::INFINITY, f64::NAN];
        for turn in 0..4 {
            let mut values = |near: bool| -> Vec<f64> {
                (0..4001)
                    .map(|k| match (k % 37, near) {
                        (0..8, _) => special[(k / 37 + k * turn) % 8],
                        // Quotients of a few bits too.
                        (_, true) => number().clamp(-1e9, 1e9) % 1e6,
                        _ => number(),
                    })
                    .collect()
            };
            let near = turn % 2 == 1;
            let args = [values(near), values(near)];
            let kind = if dtype == "f32" { DType::F32 } else { DType::F64 };
            let args = args.map(|v| Array::from_f64s(kind, &[4001], &v).expect("fits"));
            if let Err(why) = super::agrees(&module, f, &args) {
                panic!("{dtype}, {turn}: {}", &why[..why.len().min(2000)]);
            }
        }
    }
}
