//! Wrong programs, command lines and files: exit statuses and messages.

use crate::folder::{Folder, npy};
use crate::programs;

#[test]
fn errors_of_programs_are_shown_in_their_lines() {
    let d = Folder::new();
    d.file(
        "bad.ir",
        "func @f(%x: f32[2]) -> f32[3] {\n  %0 = mull %x, %x : f32[2]\n  %1 = add %x, %z : f32[2]\n  \
         return %x\n}\n",
    );
    for command in ["run", "check", "grad", "jvp", "fmt"] {
        let ran = d.run(&format!("{command} bad.ir"));
        assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{command}");
        let expected = "  --> bad.ir:2:8\n  |\n2 |   %0 = mull %x, %x : f32[2]\n  |        ^^^^\n";
        assert!(ran.err.contains(expected), "{}", ran.err);
        assert!(ran.err.contains("error[unknown-op]") && ran.err.contains("help: did you mean"));
        assert!(ran.err.contains("bad.ir:3:16") && ran.err.contains("error[unknown-name]"));
        assert!(ran.err.ends_with("errors in `bad.ir`\n"), "{}", ran.err);
    }
    // The verifier's errors have places too.
    let call =
        "func @f(%x: f32[]) -> f32[] {\n  %0 = call %x {func = @g} : f32[]\n  return %0\n}\n";
    let ran = d.pipe("check -", call.as_bytes());
    assert_eq!(ran.code, 1);
    assert!(
        ran.err.contains("no function @g") && ran.err.contains("--> <stdin>:2:3"),
        "{}",
        ran.err
    );
}

#[test]
fn wrong_command_lines_and_files_are_told_apart() {
    let d = programs();
    d.file("empty.ir", "").file("latin.ir", b"func @f\xe9").file("x.npz", "no archive");
    d.file("short.npy", npy("<f4", "(3,)", &[0; 11])).file("f64.npy", npy("<f8", "(3,)", &[0; 24]));
    d.file("four.npy", npy("<f4", "(4,)", &[0; 16])).file("text.npy", "hello, hello");
    d.file("big.npy", npy("<f4", "(4294967296, 4294967296, 4)", &[]));
    d.file("f64x.npy", npy("<f8", "(5, 2)", &[0; 80]));
    d.good("run ints.ir --save ints.npz");
    for (args, code, parts) in [
        ("", 2, ["Usage", ""]),
        ("plot x.ir", 2, ["unrecognized subcommand", ""]),
        ("run", 2, ["required", "<FILE>"]),
        ("run none.ir", 2, ["cannot read `none.ir`", ""]),
        ("run .", 2, ["cannot read `.`", ""]),
        ("run latin.ir", 1, ["not UTF-8", "byte 7"]),
        ("run empty.ir", 1, ["no functions", ""]),
        ("run two.ir", 2, ["several functions", "--func: @first, @second"]),
        ("run two.ir --func secnd", 2, ["no function @secnd", "did you mean `@second`?"]),
        ("run two.ir --func third", 2, ["no function @third", "@first, @second"]),
        ("run loss.ir --func", 2, ["--func", ""]),
        ("run loss.ir --input y=1", 2, ["no input `y`", "x"]),
        ("run loss.ir --input xx=1", 2, ["no input `xx`", "did you mean `x`?"]),
        ("run loss.ir --grad --input loss_ct=1", 2, ["no input `loss_ct`", "x, w"]),
        ("run loss.ir --input x=1 --input %x=2", 2, ["--input x is given twice", ""]),
        ("run loss.ir --input x", 2, ["expected NAME=SPEC", ""]),
        ("run loss.ir --input x=one", 2, ["expected x.npy, file.npz#name", ""]),
        ("run loss.ir --input x=[1,2", 2, ["a list is not closed", ""]),
        ("run loss.ir --input x=[1,[2]]", 2, ["side by side", ""]),
        ("run loss.ir --input x=[1,2]", 2, ["%x is f32[3], the list is f32[2]", ""]),
        ("run loss.ir --input x=true", 2, ["true is no f32", ""]),
        ("run ints.ir --input x=1.5", 2, ["1.5 is no i32", ""]),
        ("run ints.ir --input x=3000000000", 2, ["3000000000 is no i32", ""]),
        ("run ints.ir --input x=randn", 2, ["randn is for float types", ""]),
        ("run two.ir --func second --input p=1", 2, ["1 is no bool", "true and false"]),
        ("run loss.ir --input x=none.npy", 2, ["cannot read `none.npy`", ""]),
        ("run loss.ir --input x=short.npy", 2, ["cannot read `short.npy`", "ends too early"]),
        ("run loss.ir --input x=f64.npy", 2, ["holds float64", "a.astype(np.float32)"]),
        ("run loss.ir --input x=four.npy", 2, ["%x is f32[3], `four.npy` is f32[4]", ""]),
        ("run loss.ir --input x=text.npy", 2, ["no NumPy file", ""]),
        ("run loss.ir --input x=big.npy", 2, ["malformed", ""]),
        ("run loss.ir --input x=x.npz#x", 2, ["cannot read `x.npz`", ""]),
        ("run loss.ir --input x=ints.npz#z", 2, ["no array `z`", "y"]),
        ("run loss.ir --input x=ints.npz#y", 2, ["holds int32", ""]),
        ("run sym.ir", 2, ["dimension `n` of @double", "--dim n=4"]),
        ("bench sym.ir", 2, ["dimension `n` of @double", "--dim n=4"]),
        ("run sym.ir --dim m=4", 2, ["no symbolic dimension `m`", ""]),
        ("run sym.ir --dim n=4 --dim n=4", 2, ["--dim n is given twice", ""]),
        ("run sym.ir --dim n=-4", 2, ["`-4` is no extent", ""]),
        ("run sym.ir --dim n", 2, ["expected NAME=N", ""]),
        ("run sym.ir --dim n=4 --input x=f64x.npy", 2, ["found f64[5,2]", "n is 4 by --dim n"]),
        (
            "run sym.ir --input z=[1] --input x=f64x.npy",
            2,
            ["%z is f64[n], found f64[1]", "input x"],
        ),
        ("run sym.ir --dim n=99999999999999999", 1, ["larger than", ""]),
        ("run loss.ir --wrt x", 2, ["--wrt is for --grad", ""]),
        ("run loss.ir --grad --wrt q", 2, ["no parameter %q", "there is %x, %w"]),
        ("run loss.ir --grad --wrt x,x", 2, ["named twice", ""]),
        ("run two.ir --func second --grad --wrt i", 2, ["%i is i32[]", ""]),
        ("run ints.ir --grad", 1, ["no parameter of a float type", "@main"]),
        ("run loss.ir --seed=-1", 2, ["--seed", "a whole number from 0 on"]),
        ("run loss.ir --save none/out.npz", 2, ["cannot write `none/out.npz`", ""]),
        ("run loss.ir -o .", 2, ["cannot write `.`", "not a regular file"]),
        ("grad loss.ir --wrt nothing", 2, ["no parameter %nothing", "there is %x"]),
        ("grad ints.ir", 1, ["no parameter of a float type", ""]),
        ("grad loss.ir --dim n=2", 2, ["@loss has no symbolic dimension `n`", ""]),
        ("jvp loss.ir --no-value", 2, ["--no-value", ""]),
        ("check sym.ir --dim m=2", 2, ["no symbolic dimension `m`", ""]),
        ("check loss.ir --rtol=-1", 2, ["--rtol", "finite"]),
        ("check loss.ir --atol nan", 2, ["--atol", "finite"]),
        ("fmt", 2, ["<FILE>", ""]),
        ("fmt -w -", 2, ["--write needs a file", ""]),
        ("fmt -w --check loss.ir", 2, ["cannot be used with", ""]),
        ("fmt --drop-comments loss.ir", 2, ["--write", ""]),
    ] {
        let ran = d.run(args);
        assert_eq!((ran.code, ran.out.as_str()), (code, ""), "{args}: {}", ran.err);
        assert!(parts.iter().all(|p| ran.err.contains(p)), "{args}: {}", ran.err);
        assert!(!ran.err.contains("panicked") && !ran.err.contains('\x1b'), "{args}: {}", ran.err);
    }
}

/// Some editors write the mark of an encoding before a text.
#[test]
fn a_byte_order_mark_is_no_part_of_a_text() {
    let d = programs();
    let marked = |text: &str| format!("\u{feff}{text}");
    d.file("marked.ir", marked(&d.text("loss.ir")));
    assert_eq!(d.good("grad marked.ir"), d.good("grad loss.ir"));
    assert_eq!(d.pipe("fmt -", marked("func @f(").as_bytes()).code, 1);
    let csv = "id,lower,upper,size\na,0,3,4\n";
    d.file("b.csv", csv).file("marked.csv", marked(csv));
    assert_eq!(d.run("pack marked.csv").out, d.run("pack b.csv").out);
}

/// What is said to each is compared whole, with the pages of the book.
#[test]
fn the_page_of_mistakes_has_sixty() {
    let page = include_str!("../../../docs/mistakes.md");
    let mistakes = page.lines().filter(|l| l.starts_with("$ ") && l.contains("# exits with "));
    assert!(mistakes.count() >= 60);
}

/// Functions that only a program in Rust could give.
#[test]
fn a_function_that_is_not_there_is_named_in_its_line() {
    let d = Folder::new();
    d.file(
        "opaque.ir",
        "func @f(%x: f32[2]) -> f32[2] {\n  %0 = opaque %x {name = \"solve\"} : f32[2]\n  return %0\n}\n",
    );
    for command in [
        "run opaque.ir",
        "run opaque.ir --engine reference",
        "bench opaque.ir",
        "emit opaque.ir --stage asm",
    ] {
        let ran = d.run(command);
        assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{command}: {}", ran.err);
        let parts = ["there is no function `solve`", "opaque.ir:2:3", "error[unknown-name]"];
        for part in parts {
            assert!(ran.err.contains(part), "{command}: {}", ran.err);
        }
    }
    let ran = d.run("grad opaque.ir");
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("`solve` has no derivative") && ran.err.contains("opaque.ir:2:3"));
    // What needs no values is there.
    let plan = d.good("plan opaque.ir");
    assert!(plan.contains("solve"), "{plan}");
    d.good("fmt opaque.ir --check");
}

#[test]
fn folders_are_no_files() {
    let d = programs();
    for name in ["sub", "sub.toml", "sub.npy", "sub.npz"] {
        std::fs::create_dir(d.0.join(name)).unwrap();
    }
    for args in [
        "run sub",
        "pack sub",
        "plan --cost-graph sub",
        "run loss.ir --plan sub",
        "plan loss.ir --device sub.toml",
        "run loss.ir --input x=sub.npy",
        "run loss.ir --input x=sub.npz#a",
        "run loss.ir --weights sub",
        "report loss.ir --bench-file sub -o page.html",
    ] {
        let ran = d.run(args);
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{args}: {}", ran.err);
        assert!(ran.err.contains("it is a folder"), "{args}: {}", ran.err);
    }
}
