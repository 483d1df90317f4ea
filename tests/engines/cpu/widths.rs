//! Vectors of every width of the host: lines of every length, which sweeps the x86 emitter supports, why it refuses
//! others, and how its code ends.

use super::{agrees, differentiated, layout, special, strict};
use crate::common::random::inputs;
use adfuse::backends::cpu::{CpuExecutable, CpuOptions, Emitter, Vectors};
use adfuse::fusion::{self, Effort, Fp, MachineModel, compile};
use adfuse::ir::kernel::verify;
use adfuse::ir::op::Domain;
use adfuse::ir::text::parse;
use adfuse::ir::{Kind, Module};

/// The widths beside Cranelift's that the host has.
pub(crate) fn wide() -> Vec<Vectors> {
    Vectors::ALL.into_iter().filter(|&v| v > Vectors::Narrow && v <= Vectors::host()).collect()
}

/// What made each sweep of a function, and its instructions.
pub(crate) fn made(text: &str, vectors: Vectors) -> Vec<(Emitter, String)> {
    let module = parse(text).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
    let f = module.funcs.values().next().expect("a function");
    let options = fusion::PlanOptions {
        device: MachineModel::cpu(),
        effort: Effort::Default,
        fp: Fp::Strict,
    };
    let program =
        verify(compile(&Module::single(f.clone()), f, &options).expect("compiles").program);
    let program = program.unwrap_or_else(|e| panic!("{}", e[0]));
    let layout = layout(&program, Effort::Default).expect("fits");
    let options = CpuOptions { vectors, ..strict() };
    let made = CpuExecutable::compile_listed(&program, &layout, options).expect("compiles");
    made.sweeps().map(|s| (s.emitter, s.texts.expect("texts").asm.into())).collect()
}

/// Every type beside another along lines of every length below that of five vectors: partial groups alone,
/// after single ones, and after several at a time.
#[test]
fn lines_of_every_length() {
    let types = ["f32", "f64", "bf16", "f16", "i64", "i32", "u32", "i8", "u8", "bool"];
    for (k, from) in types.into_iter().enumerate() {
        let to = types[(k + 3) % types.len()];
        for n in (1..=67).chain([128, 131, 259]) {
            // Turned, so that one of the two is read or written in steps other than one.
            for (dims, turned) in [(format!("{n}"), ""), (format!("2,{n}"), "t")] {
                let (last, result) = match turned {
                    "" => (String::new(), dims.clone()),
                    _ => (
                        format!("%t = transpose %c {{perm = [1, 0]}} : {to}[{n},2]\n"),
                        format!("{n},2"),
                    ),
                };
                let value = if turned.is_empty() { "%c" } else { "%t" };
                let text = format!(
                    "func @f(%x: {from}[{dims}]) -> ({to}[{result}], {from}[{dims}]) {{
                       %c = convert_element_type %x : {to}[{dims}]
                       {last}return {value}, %x
                     }}"
                );
                let module = parse(&text).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
                let f = module.funcs.values().next().expect("a function");
                let ty = &f.param_types()[0];
                let x = special(ty.dtype, &ty.dims().expect("constant"), n);
                if let Err(why) = agrees(&module, f, &[x]) {
                    panic!("{text}: {}", &why[..why.len().min(2000)]);
                }
            }
        }
    }
}

/// More values than there are registers, some of 64 bits, with masks and what is the same along a line.
#[test]
fn bodies_of_many_values() {
    for (dtype, n) in [("f32", 131), ("f64", 67)] {
        let count = 70;
        let mut body = String::new();
        for k in 0..count {
            body += &format!("%a{k} = mul %x, {k}.5 : {dtype}[3,{n}]\n");
            body += &format!("%b{k} = sub %a{k}, %w : {dtype}[3,{n}]\n");
            body += &format!("%m{k} = gt %b{k}, %x : bool[3,{n}]\n");
        }
        body += &format!("%s0 = add %x, %w : {dtype}[3,{n}]\n");
        for k in 0..count {
            let other = (k * 7 + 3) % count;
            let next = k + 1;
            body += &format!("%c{k} = select_n %m{k}, %b{k}, %b{other} : {dtype}[3,{n}]\n");
            body += &format!("%s{next} = add %s{k}, %c{k} : {dtype}[3,{n}]\n");
        }
        let text = format!(
            "func @f(%x: {dtype}[3,{n}], %r: {dtype}[3]) -> {dtype}[3,{n}] {{
               %e = exp %r : {dtype}[3]
               %w = broadcast_in_dim %e {{dims = [0]}} : {dtype}[3,{n}]
               {body}return %s{count}
             }}"
        );
        let module = parse(&text).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
        let f = module.funcs.values().next().expect("a function");
        if let Err(why) = agrees(&module, f, &inputs(f, &[Domain::Normal])) {
            panic!("{}", &why[..why.len().min(2000)]);
        }
    }
}

/// What has wide vectors, and what is said where it has not.
#[test]
fn emitters_are_said() {
    let one = |inst: &str, from: &str, to: &str| {
        format!("func @f(%x: {from}) -> {to} {{\n  %r = {inst} : {to}\n  return %r\n}}")
    };
    let taken = [
        one("exp %x", "f32[300]", "f32[300]"),
        one("sin %x", "f64[300]", "f64[300]"),
        one("erf %x", "f64[300]", "f64[300]"),
        one("relu %x", "bf16[300]", "bf16[300]"),
        one("exp %x : f32[30,70]\n  %s = reduce_sum %r {axes = [1]}", "f32[30,70]", "f32[30]")
            .replace("return %r", "return %s"),
        one("reduce_sum %x {axes = [1]}", "f32[30,70]", "f32[30]"),
        one("reduce_max %x {axes = [0]}", "f32[30,70]", "f32[70]"),
        one("pad %x, 0.5 {low = [2], high = [1], interior = [0]}", "f32[300]", "f32[303]"),
        one("transpose %x {perm = [1, 0]}", "f32[30,70]", "f32[70,30]"),
        // Elements that are further apart than gathers reach.
        one("transpose %x {perm = [1, 0]}", "f32[64,40000000]", "f32[40000000,64]"),
        one("convert_element_type %x", "f32[300]", "i8[300]"),
        one("convert_element_type %x", "f64[300]", "bf16[300]"),
        one("rem %x, %x", "i32[300]", "i32[300]"),
        one("rem %x, 0.75", "f32[300]", "f32[300]"),
        one("div %x, 7", "i64[300]", "i64[300]"),
        // Guards along one axis, and what a reshape leaves of the others.
        "func @f(%x: f32[2,4,6,20], %y: f32[2,4,6,20]) -> (f32[2,6,2,4,20], f32[2,4,20]) {
           %a = transpose %x {perm = [0, 2, 1, 3]} : f32[2,6,4,20]
           %b = transpose %y {perm = [0, 2, 1, 3]} : f32[2,6,4,20]
           %c = reshape %a : f32[2,6,1,4,20]
           %d = reshape %b : f32[2,6,1,4,20]
           %r = concatenate %c, %d {axis = 2} : f32[2,6,2,4,20]
           %s = reduce_sum %r {axes = [0, 1]} : f32[2,4,20]
           return %r, %s
         }"
        .into(),
    ];
    let refused = [(one("rem %x, %x", "f64[300]", "f64[300]"), "no vectors have Rem of f64")];
    for vectors in wide() {
        for text in &taken {
            for (emitter, _) in made(text, vectors) {
                assert_eq!(emitter, Emitter::Wide(vectors), "{:?}: {text}", emitter.why());
            }
        }
        for (text, why) in refused.iter().filter(|_| vectors == Vectors::Avx2) {
            let said: Vec<String> = made(text, vectors)
                .iter()
                .filter_map(|(e, _)| e.why().map(|why| why.to_string()))
                .collect();
            assert_eq!(said, [*why], "{text}");
        }
    }
    for text in &taken {
        for (emitter, _) in made(text, Vectors::Narrow) {
            assert_eq!(emitter, Emitter::Cranelift(None), "{text}");
        }
    }
}

/// Four neighbours draw random bits from one counter, wherever a line begins; with AVX-512 groups share what they compute of it.
#[test]
fn random_bits_begin_anywhere() {
    for n in [5, 33, 64, 67, 130, 259] {
        for start in 0..6 {
            let (wide, end) = (n + 7, start + n);
            let text = format!(
                "func @f(%seed: i64[], %x: f32[3,{n}]) -> (f32[3,{n}], u32[3,{n}], f32[3]) {{
                   %a = rng_bits %seed, 1 : u32[3,{wide}]
                   %b = slice %a {{start = [0, {start}], limit = [3, {end}], stride = [1, 1]}} : u32[3,{n}]
                   %c = rng_bits %seed, 2 : u32[3,{n}]
                   %m = lt %c, 2147483648 : bool[3,{n}]
                   %y = select_n %m, %x, 0.0 : f32[3,{n}]
                   %z = xor %b, %c : u32[3,{n}]
                   %s = reduce_sum %y {{axes = [1]}} : f32[3]
                   return %y, %z, %s
                 }}"
            );
            let module = parse(&text).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
            let f = module.funcs.values().next().expect("a function");
            if let Err(why) = agrees(&module, f, &inputs(f, &[Domain::Normal])) {
                panic!("{text}: {}", &why[..why.len().min(2000)]);
            }
            if n > 32 && Vectors::host() == Vectors::Avx512 {
                let all = made(&text, Vectors::Avx512);
                assert!(all.iter().any(|(_, asm)| asm.contains("vpermd")), "{text}");
            }
        }
    }
}

/// Sweeps are refused while others are emitted. Whichever they are, the others have the code that they have in a program of which none
/// is refused, and all have their own functions.
#[test]
fn what_is_refused_changes_no_other_function() {
    const LENGTHS: [usize; 5] = [300, 200, 170, 90, 55];
    let program = |refused: u32| {
        let each = |parts: &dyn Fn(usize, usize) -> String| -> Vec<String> {
            LENGTHS.iter().enumerate().map(|(k, &n)| parts(k, n)).collect()
        };
        let op = |k: usize| match k {
            _ if refused >> k & 1 == 1 => "rem",
            0 | 3 => "add",
            _ => "mul",
        };
        format!(
            "func @f({}) -> ({}) {{\n{}\nreturn {}\n}}",
            each(&|k, n| format!("%x{k}: f64[{n}]")).join(", "),
            each(&|_, n| format!("f64[{n}]")).join(", "),
            each(&|k, n| format!("%r{k} = {} %x{k}, %x{k} : f64[{n}]", op(k))).join("\n"),
            each(&|k, _| format!("%r{k}")).join(", "),
        )
    };
    // With AVX-512 there is a vector form of what is refused here.
    for vectors in wide().into_iter().filter(|&v| v == Vectors::Avx2) {
        let plain = made(&program(0), vectors);
        assert_eq!(plain.len(), LENGTHS.len());
        for refused in [0b1, 0b100, 0b10000, 0b1010, 0b11111] {
            let text = program(refused);
            for (k, (one, other)) in made(&text, vectors).iter().zip(&plain).enumerate() {
                match refused >> k & 1 {
                    0 => assert_eq!(one, other, "{k}: {text}"),
                    _ => assert!(matches!(one.0, Emitter::Cranelift(Some(_))), "{k}: {text}"),
                }
            }
            let module = parse(&text).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
            let f = module.funcs.values().next().expect("a function");
            if let Err(why) = agrees(&module, f, &inputs(f, &[Domain::Normal])) {
                panic!("{text}: {}", &why[..why.len().min(2000)]);
            }
        }
    }
}

/// The functions of models with their gradients that are left to Cranelift with AVX2, by what they are for, with the
/// reasons: places by data, in strides of quotients, and of updates. With AVX-512 none is.
const LEFT: [(&str, &str); 4] = [
    ("conv_as_slices", "p0 is not read in equal steps"),
    ("conv_as_slices", "p1 is not read in equal steps"),
    ("cross_entropy_gather", "p3 is not read in equal steps"),
    ("embedding", "it computes places of updates"),
];

/// What models leave is known, and what is taken after all is no longer listed.
#[test]
fn what_models_leave_to_cranelift_is_listed() {
    let listed: Vec<(String, String)> =
        LEFT.iter().map(|(model, why)| ((*model).into(), (*why).into())).collect();
    for vectors in wide() {
        let mut all = 0;
        let mut left: Vec<(String, String)> = Vec::new();
        for (name, g) in differentiated() {
            let text = g.to_string();
            for (emitter, _) in made(&text, vectors) {
                all += 1;
                left.extend(emitter.why().map(|why| (name.clone(), why.to_string())));
            }
        }
        assert!(all > 150, "{all} functions");
        match vectors {
            Vectors::Avx512 => assert_eq!(left, [], "{vectors:?}"),
            _ => assert_eq!(left, listed, "{vectors:?}"),
        }
    }
}

/// Upper halves of registers are cleared on every exit, and nothing is called: code that knows nothing of
/// them would be slow after it.
#[test]
fn upper_halves_are_cleared() {
    let texts = [
        "func @f(%x: f32[300]) -> f32[300] {\n  %r = tanh %x : f32[300]\n  return %r\n}",
        "func @f(%x: f64[3,70]) -> f64[3] {\n  %r = reduce_sum %x {axes = [1]} : f64[3]\n  return %r\n}",
    ];
    for vectors in wide() {
        for text in texts {
            for (_, asm) in made(text, vectors).iter().filter(|(e, _)| e.why().is_none()) {
                let lines: Vec<&str> = asm.lines().collect();
                let at = |what: &str| lines.iter().position(|l| l.contains(what));
                let used = |l: &&str| ["xmm", "ymm", "zmm"].iter().any(|r| l.contains(r));
                let last = lines.iter().rposition(used).expect("vectors");
                let (clear, ret) =
                    (at("vzeroupper").expect("cleared"), at("ret").expect("returns"));
                assert!(last < clear && clear < ret && ret + 1 == lines.len(), "{asm}");
                assert!(at("call").is_none(), "{asm}");
            }
        }
    }
}

/// Asking for more than the host has is an error, and never a silent step down.
#[test]
fn wider_vectors_than_the_host_has_are_refused() {
    for vectors in Vectors::ALL {
        assert_eq!(Vectors::of_bits(vectors.bits()), Some(vectors));
        match vectors.checked() {
            Ok(found) => assert!(found == vectors && vectors <= Vectors::host()),
            Err(d) => {
                assert!(vectors > Vectors::host() && d.kind == Kind::Usage, "{d}");
                assert!(d.to_string().contains(&vectors.bits().to_string()), "{d}");
            }
        }
    }
}
