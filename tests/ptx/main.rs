//! PTX of everything: the programs of the filetests, the models with their gradients, every row of the op
//! table and random programs become text, the same each time, that an assembler takes for every target.
//! The assembler is found as `ADFUSE_PTXAS` says, where `scripts/fetch-ptxas.sh` puts it, or on the PATH;
//! where there is none, tests that need it are ignored when all else in them holds.

mod arithmetic;
mod assembler;
mod attention;
mod bits;
#[path = "../common/mod.rs"]
mod common;
mod convolutions;
mod described;
mod folds;
mod instructions;
mod lanes;
mod layouts;
mod loops;
mod machine;
mod pieces;
mod products;
mod prologues;
mod residuals;
mod schedules;
#[path = "../common/trials.rs"]
mod trials;
mod user_kernels;
mod warpgroups;

use adfuse::autodiff::{differentiable, forward_and_backward};
use adfuse::backends::ptx::{self, CodeCache, GpuTarget, ScheduleContext};
use adfuse::fusion::{self, Effort, Fp, MachineModel, compile};
use adfuse::ir::kernel::text::parse as read;
use adfuse::ir::kernel::{Program, Step, Verified, verify};
use adfuse::ir::op::{Body, Composition};
use adfuse::ir::rewrite::{StepLowering, specialize, with_steps};
use adfuse::ir::text::parse;
use adfuse::ir::{DType, Diagnostic, Function, Kind, Module, Op};
use assembler::Assembly;
use common::kernels::files;
use common::programs::decode_over;
use common::random;
use std::process::ExitCode;
use trials::{Skipped, run, trials};

fn lowered(module: &Module, f: &Function, effort: Effort, fp: Fp) -> Verified<Program> {
    let options = fusion::PlanOptions { device: MachineModel::h200(), effort, fp };
    // Attention is what it is composed of.
    let composed = with_steps(f.clone(), &|_, _| StepLowering::Composed(Composition::Defined));
    let f = &composed.expect("known extents");
    let compiled = compile(module, f, &options).unwrap_or_else(|d| panic!("{d}\n{f}"));
    verify(compiled.program).unwrap_or_else(|e| panic!("{}", e[0]))
}

/// A program's module, which is the same after its launches were found without text.
fn compiled(
    program: &Verified<Program>,
    target: GpuTarget,
    fp: Fp,
) -> Result<ptx::PtxModule, Diagnostic> {
    let whole = ptx::compile(program, target, fp)?;
    let (codes, context) = (CodeCache::default(), ScheduleContext::new(target, fp));
    let launches = codes.launches(program, context, &[]);
    let without = ptx::PtxModule { text: String::new(), ..whole.clone() };
    assert_eq!(launches, Ok(without), "{}", **program);
    assert_eq!(codes.compile(program, context, &[]).as_ref(), Ok(&whole), "{}", **program);
    Ok(whole)
}

/// The program's module for the oldest target; that of the newest one has what [`compiled`] asserts.
fn emitted(program: &Verified<Program>, fp: Fp) -> ptx::PtxModule {
    let made =
        |module: Result<_, Diagnostic>| module.unwrap_or_else(|d| panic!("{d}\n{}", **program));
    made(compiled(program, GpuTarget::SM90A, fp));
    let module = made(ptx::compile(program, GpuTarget::SM80, fp));
    assert_eq!(module.steps.len(), program.steps.len());
    module
}

fn add(all: &mut Assembly, name: &str, program: &Verified<Program>, fp: Fp) {
    let module = emitted(program, fp);
    all.add(name, &module, &program.to_string());
    if let Some(newer) = newer(&module, program, fp) {
        all.add(name, &newer, &program.to_string());
    }
}

/// The module for a newer chip, where it has other instructions for the program.
fn newer(module: &ptx::PtxModule, program: &Verified<Program>, fp: Fp) -> Option<ptx::PtxModule> {
    let newer = ptx::compile(program, GpuTarget::SM90, fp).expect("compiles for an older chip");
    let [own, of_newer] =
        [GpuTarget::SM80, GpuTarget::SM90].map(|t| format!(".target {}\n", t.name));
    (newer.text != module.text.replace(&own, &of_newer)).then_some(newer)
}

/// Whether a program has steps without PTX, for which it must be refused with the step.
fn refused(program: &Verified<Program>) -> bool {
    let without = |s: &Step| matches!(s, Step::Library(_) | Step::Attend(_));
    if !program.steps.iter().any(without) {
        return false;
    }
    let refused = ptx::compile(program, GpuTarget::SM80, Fp::Strict).expect_err("has no PTX");
    assert_eq!(refused.kind, Kind::Unsupported);
    assert!(refused.to_string().contains("step"), "{refused}");
    true
}

fn programs_of_the_filetests() -> Result<(), Skipped> {
    let mut all = Assembly::default();
    for (name, text) in files() {
        let program = verify(read(&text).expect("reads")).expect("verifies");
        if refused(&program) {
            continue;
        }
        add(&mut all, &name, &program, Fp::Strict);
    }
    all.assembled()?;
    Ok(())
}

/// The models with their gradients.
fn differentiated() -> Vec<(String, Function)> {
    let one = |(name, module, f): (String, Module, Function)| {
        let wrt = differentiable(&f, None).expect("has floats");
        let g = forward_and_backward(&module, &f, &wrt).unwrap_or_else(|d| panic!("{d}"));
        (name, g)
    };
    common::models::all().into_iter().map(one).collect()
}

fn models() -> Result<(), Skipped> {
    let mut all = Assembly::default();
    for (name, g) in differentiated() {
        for (effort, fp) in
            [(Effort::Off, Fp::Strict), (Effort::Default, Fp::Strict), (Effort::Default, Fp::Fast)]
        {
            let program = lowered(&Module::single(g.clone()), &g, effort, fp);
            let module = emitted(&program, fp);
            // Those without fusion are made of what the rows of the table are made of.
            if effort == Effort::Default && fp == Fp::Strict {
                all.add(&format!("{name} {effort:?} {fp:?}"), &module, &program.to_string());
            }
        }
    }
    all.assembled()?;
    Ok(())
}

fn every_row() -> Result<(), Skipped> {
    let mut all = Assembly::default();
    for &op in Op::ALL {
        if matches!(op.def().body, Body::Region(_) | Body::Effect(_)) {
            continue;
        }
        for (k, module) in random::cases(op, 131).iter().enumerate() {
            let f = module.funcs.values().next().expect("a function");
            let extents = f.symbols.iter().map(|&s| (s, 3)).collect();
            let f = specialize(f, &extents).expect("three of each");
            let program = lowered(module, &f, Effort::Off, Fp::Strict);
            if refused(&program) {
                continue;
            }
            let made = emitted(&program, Fp::Strict);
            // The assembler takes long for the longest: of each row the first case, and every type once.
            let long = f.param_types().iter().all(|t| t.dims().as_deref() == Some(&[131]));
            if k == 0 || long {
                all.add(&op.to_string(), &made, &program.to_string());
            }
        }
    }
    all.assembled()?;
    Ok(())
}

fn random_programs() -> Result<(), Skipped> {
    let all = std::cell::RefCell::new(Assembly::default());
    let of_types = [
        (DType::F32, [33, 68]),
        (DType::F64, [33, 68]),
        (DType::BF16, [33, 68]),
        (DType::BF16, [2, 130]),
    ];
    for (dtype, extents) in of_types {
        random::programs(17, 20, |steps| {
            let f = decode_over(steps, dtype, extents);
            let module = Module::single(f.clone());
            let wrt = differentiable(&f, None).map_err(|d| d.to_string())?;
            let g = forward_and_backward(&module, &f, &wrt).map_err(|d| format!("{d}\n{f}"))?;
            let program = lowered(&Module::single(g.clone()), &g, Effort::Default, Fp::Strict);
            if !refused(&program) {
                add(&mut all.borrow_mut(), "random", &program, Fp::Strict);
            }
            Ok(())
        });
    }
    all.into_inner().assembled()?;
    Ok(())
}

fn a_function_in_text() {
    // Loads and stores of neighbours are of 16 bytes, and nothing is joined that strict mode keeps apart.
    let text = "func @f(%x: f32[64,1024], %y: f32[1024]) -> f32[64,1024] {
      %b = broadcast_in_dim %y {dims = [1]} : f32[64,1024]
      %m = mul %x, %b : f32[64,1024]
      %r = add %m, %x : f32[64,1024]
      return %r
    }";
    let module = parse(text).unwrap_or_else(|e| panic!("{e:?}"));
    let f = module.funcs.values().next().expect("a function");
    let of = |fp| emitted(&lowered(&module, f, Effort::Default, fp), fp).text;
    let strict = of(Fp::Strict);
    assert_eq!(strict.matches("ld.global.nc.v4.f32").count(), 2, "{strict}");
    assert_eq!(strict.matches("st.global.v4.f32").count(), 1, "{strict}");
    assert!(strict.contains("mul.rn.f32") && !strict.contains("fma"), "{strict}");
    assert_eq!(of(Fp::Fast).matches("fma.rn.f32").count(), 4);
}

/// A program of the benches and its gradients, with the extent of `n`.
///
/// Rows have another length there than `row.0`.
fn benched(name: &str, n: u64, row: (&str, &str)) -> Function {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/programs");
    let text = std::fs::read_to_string(format!("{folder}/{name}.ir")).expect("reads");
    let module = parse(&text.replace(row.0, row.1)).unwrap_or_else(|e| panic!("{e:?}"));
    let f = module.funcs.values().next().expect("a function");
    let extents = f.symbols.iter().map(|&s| (s, n)).collect();
    let f = specialize(f, &extents).expect("an extent");
    match f.results().len() {
        1 if f.result_types()[0].rank() == 0 => {
            let names = wanted(name);
            let names = (!names.is_empty()).then_some(&names[..]);
            let wrt = differentiable(&f, names).expect("has floats");
            let module = Module::single(f.clone());
            forward_and_backward(&module, &f, &wrt).unwrap_or_else(|d| panic!("{d}"))
        }
        _ => f,
    }
}

/// The parameters that a program's bench differentiates with respect to; none: all.
fn wanted(name: &str) -> Vec<String> {
    let list: &[&str] = match name.trim_end_matches("_bf16") {
        "bias_relu_loss" => &["x", "b"],
        "residual_norm_loss" => &["x", "r", "g", "b"],
        "vocabulary_loss" => &["x"],
        _ => &[],
    };
    list.iter().map(|s| s.to_string()).collect()
}

/// What a function of one parameter becomes, and instructions that it must have and must not have: in strict mode
/// what is rounded correctly, in fast mode what the chip has, of `f32` alone.
const WRITTEN: [(&str, &str, &str, &str); 9] = [
    ("exp %x", "f32", "fma.rn.f32", "ex2.approx.ftz.f32"),
    ("exp2 %x", "f32", "fma.rn.f32", "ex2.approx.f32"),
    ("tanh %x", "f32", "div.rn.f32", "rcp.approx.ftz.f32"),
    ("logistic %x", "bf16", "div.rn.f32", "rcp.approx.ftz.f32"),
    ("erf %x", "f16", "setp.lt.f32", "ex2.approx.ftz.f32"),
    ("rsqrt %x", "f32", "sqrt.rn.f32", "rsqrt.approx.f32"),
    ("sqrt %x", "f32", "sqrt.rn.f32", "sqrt.approx.f32"),
    ("div %x, %x", "f32", "div.rn.f32", "div.full.f32"),
    ("div 1.0, %x", "f32", "div.rn.f32", "rcp.approx.f32"),
];

fn functions_in_each_mode() -> Result<(), Skipped> {
    let mut all = Assembly::default();
    for (what, dtype, exact, near) in WRITTEN {
        let made = |dtype: &str, fp: Fp| {
            let ty = format!("{dtype}[64,1024]");
            let text = format!("func @f(%x: {ty}) -> {ty} {{ %y = {what} : {ty} return %y }}");
            let module = parse(&text).unwrap_or_else(|e| panic!("{e:?}"));
            let f = module.funcs.values().next().expect("a function");
            let program = lowered(&module, f, Effort::Default, fp);
            (emitted(&program, fp), program.to_string())
        };
        for fp in [Fp::Strict, Fp::Reproducible] {
            let text = made(dtype, fp).0.text;
            assert!(text.contains(exact) && !text.contains("approx"), "{what} {fp:?}\n{text}");
        }
        let (fast, program) = made(dtype, Fp::Fast);
        assert!(fast.text.contains(near), "{what}\n{}", fast.text);
        assert!(!fast.text.contains("div.rn") && !fast.text.contains("sqrt.rn"), "{}", fast.text);
        all.add(what, &fast, &program);
        let wide = made("f64", Fp::Fast).0.text;
        assert!(!wide.contains("approx") && !wide.contains("div.full"), "{what}\n{wide}");
    }
    // By powers of two in every mode.
    for (by, fp, divides) in [
        ("4096.0", Fp::Strict, false),
        ("3.0", Fp::Strict, true),
        ("3.0", Fp::Reproducible, true),
        ("3.0", Fp::Fast, false),
    ] {
        let text =
            format!("func @f(%x: f32[64]) -> f32[64] {{ %y = div %x, {by} : f32[64] return %y }}");
        let module = parse(&text).unwrap_or_else(|e| panic!("{e:?}"));
        let f = module.funcs.values().next().expect("a function");
        let text = emitted(&lowered(&module, f, Effort::Default, fp), fp).text;
        assert_eq!(text.contains("div."), divides, "{by} {fp:?}\n{text}");
        assert_eq!(text.contains("mul.rn.f32"), !divides, "{by} {fp:?}\n{text}");
    }
    all.assembled()?;
    Ok(())
}

/// Kernels of rows and of elements at the sizes of benches keep all they hold in registers.
fn no_spills() -> Result<(), Skipped> {
    let elements = [("add_gelu", 1 << 20), ("relu_loss", 1 << 20), ("gelu_loss", 1 << 20)];
    let elements =
        elements.iter().chain(&[("dropout_chain", 1 << 20), ("add_gelu_tanh_loss", 1 << 20)]);
    // Rows of a warp, and of a block that holds them in shared memory.
    let rows = ["softmax", "softmax_loss", "l2_norm_loss", "layer_norm_loss", "cross_entropy_loss"];
    let rows = rows.iter().flat_map(|&name| ["1024", "50304"].map(|row| (name, 8192, row)));
    let long =
        [("bias_relu_loss", 16384), ("residual_norm_loss", 16384), ("vocabulary_loss", 8192)];
    let long = long.iter().map(|&(name, n)| (name, n, "1024"));
    let short = [("residual_norm_loss_bf16", 16384), ("vocabulary_loss_bf16", 8192)];
    let short = short.iter().map(|&(name, n)| (name, n, "1024"));
    let elements = elements.map(|&(name, n)| (name, n, "1024", 128));
    let rows = rows.chain(long).chain(short).map(|(name, n, row)| (name, n, row, 255));
    for (name, n, row, most) in elements.chain(rows) {
        let mut all = Assembly::default();
        let g = benched(name, n, ("1024", row));
        for fp in [Fp::Strict, Fp::Reproducible, Fp::Fast] {
            let program = lowered(&Module::single(g.clone()), &g, Effort::Default, fp);
            add(&mut all, &format!("{name} {row}"), &program, fp);
            // With more shared memory rows are kept that the older target reads again.
            let newer = ptx::compile(&program, GpuTarget::SM90, fp).expect("compiles");
            all.add(&format!("{name} {row}"), &newer, &program.to_string());
        }
        for r in &all.assembled()? {
            // A row of a vocabulary in registers, beside exponentials in all of shared memory: two registers too many.
            let few = if name == "vocabulary_loss_bf16" { 16 } else { 0 };
            assert!(r.spilled <= few, "{name} {row}: {} spills {} bytes", r.entry, r.spilled);
            assert!(r.registers <= most, "{name} {row}: {}: {} registers", r.entry, r.registers);
        }
    }
    Ok(())
}

/// Functions of rows and their gradients read each large operand once, the gradients of scales and
/// biases with it.
fn rows_are_read_once() {
    let cases = [
        ("bias_relu_loss", 16384, &["x", "t"][..]),
        ("residual_norm_loss", 16384, &["x", "r", "t"]),
        ("residual_norm_loss_bf16", 16384, &["x", "r", "t"]),
        ("vocabulary_loss", 8192, &["x"]),
        ("vocabulary_loss_bf16", 8192, &["x"]),
    ];
    for (name, n, operands) in cases {
        let g = benched(name, n, ("1024", "1024"));
        for fp in [Fp::Strict, Fp::Fast] {
            let program = lowered(&Module::single(g.clone()), &g, Effort::Default, fp);
            let module = ptx::compile(&program, GpuTarget::SM90, fp).expect("compiles");
            let launches = || module.steps.iter().flat_map(|s| &s.launches);
            for operand in operands {
                let (b, _) = program
                    .buffers
                    .iter()
                    .find(|(_, data)| data.name == *operand)
                    .unwrap_or_else(|| panic!("no %{operand}"));
                let readers = launches().filter(|l| l.args.contains(&ptx::Arg::Buffer(b)));
                assert_eq!(readers.count(), 1, "{name} {fp:?}: %{operand}\n{}", *program);
            }
            assert!(launches().count() <= 6, "{name} {fp:?}: {} launches", launches().count());
        }
    }
}

fn main() -> ExitCode {
    run(trials![
        described::plans_are_priced_and_counted_without_a_gpu,
        described::launches_are_counted_as_they_are_printed,
        programs_of_the_filetests,
        models,
        every_row,
        random_programs,
        a_function_in_text,
        functions_in_each_mode,
        no_spills,
        rows_are_read_once,
        bits::orders_of_short_lines,
        bits::orders_of_long_lines,
        bits::scatters,
        bits::transposes,
        bits::scans,
        bits::programs_of_the_filetests,
        bits::every_row,
        bits::models_and_their_gradients,
        bits::random_programs,
        bits::random_loops,
        bits::functions_with_loops,
        bits::blocks_by_hand,
        bits::rows_that_fill_a_chip,
        layouts::rows_begin_at_lines_of_the_cache,
        layouts::the_last_neighbours_of_a_row_are_few,
        residuals::gelu_leaves_its_operand,
        bits::rows_are_written_in_place,
        bits::pieces_of_a_row_add_up,
        bits::extremes_are_folded_in_pairs,
        bits::lanes_fold_neighbours,
        folds::few_columns_have_short_chains,
        folds::trees_of_a_loop_share_launches,
        bits::arithmetic_in_pairs_rounds_as_one,
        arithmetic::pairs_round_once,
        pieces::pieces_are_read_by_vectors,
        pieces::an_address_of_pieces_is_chosen,
        bits::nothing_spills,
        schedules::texts_read_back,
        schedules::edited_texts_are_refused_or_run,
        schedules::mutated_texts_do_not_panic,
        attention::all_forms_assemble_without_spills,
        attention::other_modes_refuse_attention,
        attention::defined_attention_has_the_bits_of_its_definition,
        attention::larger_blocks_have_the_bits_of_the_definition,
        attention::sums_below_zero_stay,
        attention::long_attentions_have_warpgroups,
        attention::schedules_of_attention_read_back,
        products::all_of_them_assemble_without_spills,
        products::the_largest_tiles_leave_room,
        products::modes_choose_what_multiplies,
        products::blocks_share_a_long_depth,
        convolutions::sums_of_windows_are_convolutions,
        convolutions::channels_by_themselves_are_elementwise,
        convolutions::sums_are_those_of_the_evaluator,
        convolutions::windows_are_multiplied_by_tensor_cores_in_fast,
        convolutions::words_are_multiplied_by_tensor_cores,
        convolutions::arrays_are_padded_for_libraries_alone,
        convolutions::tiles_of_large_ones_assemble_without_spills,
        convolutions::windows_share_words,
        convolutions::tiles_read_back_or_are_refused,
        prologues::computed_operands_have_the_sums_of_the_evaluator,
        prologues::what_is_computed_is_multiplied_by_tensor_cores,
        prologues::rounding_once_changes_no_bit,
        prologues::paths_read_back_or_are_refused,
        prologues::normalised_arrays_are_not_stored,
        warpgroups::large_products_of_16_bit_floats_have_them,
        warpgroups::operands_with_heads_are_read_in_place,
        warpgroups::every_tile_is_assembled_without_spills,
        warpgroups::products_that_are_alike_share_a_grid,
        warpgroups::terms_are_read_where_they_are,
        warpgroups::long_depths_are_cut_into_runs,
        warpgroups::tiles_that_do_not_fit_are_refused,
        user_kernels::calls_have_the_bits_of_their_functions_in_rust,
        user_kernels::schedules_of_calls_read_back,
        user_kernels::what_does_not_fit_is_refused_at_its_place,
        user_kernels::texts_are_assembled,
    ])
}
