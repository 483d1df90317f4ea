//! Values in memory are stored in no more bits than they need, and read back the same.

use crate::common::random::inputs;
use adfuse::backends::reference::{Silent, kernel, run};
use adfuse::engine::Cpu;
use adfuse::fusion::{Effort, Fp, MachineModel, Plan, PlanOptions, lower, plan, prepare};
use adfuse::ir::kernel::{Storage, verify};
use adfuse::ir::op::Domain;
use adfuse::ir::text::parse;
use adfuse::ir::{Function, Module};

const OPTIONS: fn() -> PlanOptions =
    || PlanOptions { device: MachineModel::cpu(), effort: Effort::Default, fp: Fp::Strict };

/// A function that leaves `%v` in memory, made from `%x`, for a kernel of other points.
fn leaving(x: &str, made: &str, v: &str) -> Function {
    let (dtype, dims) = v.split_once('[').expect("a type");
    let n: u64 =
        dims.trim_end_matches(']').split(',').map(|n| n.parse::<u64>().expect("n")).product();
    // A gather finds its operand in memory.
    let text = format!(
        "func @f(%x: {x}, %i: i32[70,1]) -> {dtype}[70] {{
           {made}
           %flat = reshape %v : {dtype}[{n}]
           %r = gather %flat, %i {{offset_dims = [], collapsed = [0], start_map = [0], sizes = [1], mode = clip}} : {dtype}[70]
           return %r
         }}"
    );
    let module = parse(&text).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
    let f = module.funcs.values().next().expect("a function");
    prepare(&module, f).expect("no calls")
}

/// The form in which the plan stores what the gather reads.
fn form(f: &Function, plan: &Plan) -> Storage {
    let program = lower(f, plan, &MachineModel::cpu()).unwrap_or_else(|d| panic!("{d}"));
    let forms: Vec<Storage> = program
        .buffers
        .values()
        .filter(|b| matches!(b.role, adfuse::ir::kernel::Role::Temp))
        .map(|b| b.storage)
        .collect();
    assert_eq!(forms.len(), 1, "{program}");
    forms[0]
}

#[test]
fn numbers_take_the_bits_they_need() {
    let cases = [
        ("f32[90,4]", "%v = argmax %x {axis = 1} : i32[90]", "i32[90]", Storage::Packed(2)),
        ("f32[90,16]", "%v = argmin %x {axis = 1} : i32[90]", "i32[90]", Storage::Packed(4)),
        ("f32[90,17]", "%v = argmax %x {axis = 1} : i32[90]", "i32[90]", Storage::Packed(8)),
        ("f32[90,256]", "%v = argmax %x {axis = 1} : i32[90]", "i32[90]", Storage::Packed(8)),
        ("f32[90,257]", "%v = argmax %x {axis = 1} : i32[90]", "i32[90]", Storage::Plain),
        // Too few to be worth it.
        ("f32[40,4]", "%v = argmax %x {axis = 1} : i32[40]", "i32[40]", Storage::Plain),
        ("f32[90]", "%v = gt %x, 0.0 : bool[90]", "bool[90]", Storage::Packed(1)),
        (
            "f32[90]",
            "%b = gt %x, 0.0 : bool[90]\n%v = convert_element_type %b : i32[90]",
            "i32[90]",
            Storage::Packed(2),
        ),
        ("i32[90]", "%a = max %x, 3\n%v = min %a, 15 : i32[90]", "i32[90]", Storage::Packed(4)),
        (
            "i32[90]",
            "%a = max %x, -1 : i32[90]\n%v = min %a, 15 : i32[90]",
            "i32[90]",
            Storage::Plain,
        ),
        ("i32[90]", "%v = min %x, 15 : i32[90]", "i32[90]", Storage::Plain),
        (
            "f32[90,4]",
            "%a = argmax %x {axis = 1} : i32[90]\n%m = mul %a, 5 : i32[90]\n%v = sub %m, 1 : i32[90]",
            "i32[90]",
            // -1 to 14.
            Storage::Plain,
        ),
        (
            "bool[90,11]",
            "%a = convert_element_type %x : i32[90,11]\n%v = reduce_sum %a {axes = [1]} : i32[90]",
            "i32[90]",
            Storage::Packed(4),
        ),
    ];
    for (x, made, v, wanted) in cases {
        let made = made.replace("max %x, 3\n", "max %x, 3 : i32[90]\n");
        let f = leaving(x, &made, v);
        let found = plan(&f, &OPTIONS()).expect("has a lowering");
        assert_eq!(form(&f, &found), wanted, "{f}");
        // It reads back the same, on every engine.
        let args = inputs(&f, &[Domain::Normal, Domain::Ints(0, 89)]);
        let module = Module::single(f.clone());
        let expected = run(&module, &f, &args, &mut Silent).expect("runs");
        let program = lower(&f, &found, &MachineModel::cpu()).expect("has a lowering");
        let program = verify(program).unwrap_or_else(|e| panic!("{}", e[0]));
        assert_eq!(kernel::run(&program, &args).expect("runs"), expected, "{f}");
        let made = Cpu::default().of_program(program).expect("compiles");
        assert_eq!(made.executable.run(&args).expect("runs"), expected, "{f}");
        // A form that is too narrow is refused.
        let stored = found.storage.first().copied();
        if let Some((value, Storage::Packed(bits))) = stored.filter(|s| s.1 != Storage::Packed(1)) {
            let narrow = if bits > 2 { Storage::Packed(bits / 2) } else { Storage::Packed(1) };
            let wrong = Plan { storage: vec![(value, narrow)], ..found };
            let refused = lower(&f, &wrong, &MachineModel::cpu()).expect_err("too narrow");
            assert!(refused.message.contains("fewer bits"), "{refused}");
        }
    }
}
