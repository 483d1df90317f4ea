//! Attention on matrix units: near its definition in every form, the same bits every time, and less memory than scores take.

use crate::common::attentions::{Extra, Form, table};
use crate::common::kernels::arguments;
use crate::common::random::inputs;
use crate::near::distance;
use crate::trials::Skipped;
use crate::{Outcome, all, gpu};
use adfuse::autodiff::{differentiable, forward_and_backward};
use adfuse::backends::Array;
use adfuse::backends::reference::{Silent, kernel, run};
use adfuse::engine::Gpu;
use adfuse::fusion::Fp;
use adfuse::ir::kernel::text::parse as read;
use adfuse::ir::kernel::{Program, Verified, verify};
use adfuse::ir::op::Domain;
use adfuse::ir::text::parse;
use adfuse::ir::{DType, Module};

fn program(form: &Form, backward: bool) -> Verified<Program> {
    let text = form.text(backward);
    let program = read(&text).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
    verify(program).unwrap_or_else(|e| panic!("{}\n{text}", e[0]))
}

/// Whether NaNs and infinities are at the same places, and the rest is near.
fn near(found: &Array, expected: &Array, most: f64) -> Result<(), String> {
    let (a, b) = (found.to_f64s(), expected.to_f64s());
    let unusual = |x: f64| (!x.is_finite()).then(|| x.to_string());
    if let Some(k) = (0..a.len()).find(|&k| unusual(a[k]) != unusual(b[k])) {
        return Err(format!("element {k} is {}, not {}", a[k], b[k]));
    }
    let finite = |x: &[f64]| -> Vec<f64> {
        x.iter().map(|&x| if x.is_finite() { x } else { 0.0 }).collect()
    };
    let dims: Vec<u64> = vec![a.len() as u64];
    let of = |x: &[f64]| Array::from_f64s(DType::F64, &dims, &finite(x)).expect("fits");
    let apart = distance(&of(&a), &of(&b));
    if apart <= most { Ok(()) } else { Err(format!("{apart:e} apart, not {most:e}")) }
}

fn check(gpu: &Gpu, &(form, fp): &(Form, Fp)) -> Outcome {
    let form = &form;
    let forward = program(form, false);
    let args = arguments(&forward);
    let outputs = match kernel::run(&forward, &args) {
        Ok(outputs) => outputs,
        Err(d) => return Outcome::Wrong(d.to_string()),
    };
    let backward = program(form, true);
    let mut back = arguments(&backward);
    // The way back is given the logarithms of the sums that there were.
    back[3] = outputs[1].clone();
    let expected = match kernel::run(&backward, &back) {
        Ok(found) => found,
        Err(d) => return Outcome::Wrong(d.to_string()),
    };
    let mut gpu = gpu.clone();
    gpu.plan.fp = fp;
    for (program, args, expected) in [(forward, args, outputs), (backward, back, expected)] {
        let made = match gpu.of_program(program) {
            Ok(made) => made.executable,
            Err(d) => return Outcome::Wrong(format!("{form:?} {fp:?}: {d}")),
        };
        // Sums are in registers, also where the warps that multiply are handed those of others. What only a short last tile needs
        // may wait in memory where warps multiply.
        if let Some(step) = made.steps().iter().find(|step| step.local > 16) {
            return Outcome::Wrong(format!(
                "{form:?} {fp:?}: {} bytes of a thread are spilled",
                step.local
            ));
        }
        let runs = [(); 2].map(|()| made.run(&args));
        let [Ok(found), Ok(again)] = runs else {
            return Outcome::Wrong(format!("{form:?} {fp:?}: {runs:?}"));
        };
        if found != again {
            return Outcome::Wrong(format!("{form:?} {fp:?}: other bits in another run"));
        }
        for (k, (found, expected)) in found.iter().zip(&expected).enumerate() {
            let most = if form.dtype == DType::F16 { 4e-3 } else { 2e-2 };
            if let Err(why) = near(found, expected, most) {
                return Outcome::Wrong(format!(
                    "{form:?} {fp:?}: result {k} of {}: {why}",
                    expected.ty()
                ));
            }
        }
    }
    Outcome::Same
}

pub(crate) fn attention_on_matrix_units() -> Result<(), Skipped> {
    let gpu = gpu()?;
    let cases: Vec<(Form, Fp)> = table()
        .into_iter()
        .flat_map(|form| [Fp::Fast, Fp::Reproducible].map(|fp| (form, fp)))
        .collect();
    all("attention_on_matrix_units", &cases, |case| check(&gpu, case));
    Ok(())
}

/// Value and gradients of the op as users write it, for a loss that weighs its result.
fn function(form: &Form) -> String {
    let Form { heads: [batch, groups, shared], rows, stream, depth, width, .. } = *form;
    let (t, heads) = (form.dtype.name(), groups * shared);
    let y = format!("[{batch},{heads},{rows},{width}]");
    let (extra, arg) = match form.extra {
        Extra::None => (String::new(), ""),
        Extra::Mask => (format!(", %x: bool[1,1,{rows},{stream}]"), ", %x"),
        Extra::Bias { .. } => (format!(", %x: {t}[1,{heads},{rows},{stream}]"), ", %x"),
    };
    let [before, after] = form.window;
    let window = match form.window {
        [-1, -1] => String::new(),
        _ => format!(" {{window = [{before}, {after}]}}"),
    };
    format!(
        "func @f(%q: {t}[{batch},{heads},{rows},{depth}], %k: {t}[{batch},{groups},{stream},{depth}], \
         %v: {t}[{batch},{groups},{stream},{width}], %w: f32{y}{extra}) -> f32[] {{
           %y, %l = attention %q, %k, %v{arg}{window} : {t}{y}, f32[{batch},{heads},{rows}]
           %z = convert_element_type %y : f32{y}
           %p = mul %z, %w : f32{y}
           %r = reduce_sum %p {{axes = [0, 1, 2, 3]}} : f32[]
           return %r
         }}"
    )
}

/// In strict mode attention is what defines it, on a GPU as on a CPU.
pub(crate) fn strict_attention_has_the_bits_of_its_definition() -> Result<(), Skipped> {
    let gpu = gpu()?;
    let forms = table();
    let small = forms.iter().filter(|form| form.rows * form.stream <= 1 << 16);
    let cases: Vec<Form> =
        small.flat_map(|&form| [form, Form { dtype: DType::F32, ..form }]).collect();
    assert!(cases.len() > 10);
    all("strict_attention", &cases, |form| {
        let text = function(form);
        let module = parse(&text).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
        let f = module.find("f").expect("there");
        let wrt = differentiable(f, None).expect("floats");
        let g = forward_and_backward(&module, f, &wrt).unwrap_or_else(|d| panic!("{d}\n{text}"));
        let args = inputs(&g, &[Domain::Normal]);
        let module = Module::single(g.clone());
        let due = match run(&module, &g, &args, &mut Silent) {
            Ok(due) => due,
            Err(d) => return Outcome::Wrong(d.to_string()),
        };
        let made = match gpu.compile(&module, &g) {
            Ok(made) => made.executable,
            Err(d) => return Outcome::Wrong(format!("{form:?}: {d}")),
        };
        match made.run(&args) {
            Ok(found) if found == due => Outcome::Same,
            Ok(_) => Outcome::Wrong(format!("{form:?}: other bits")),
            Err(d) => Outcome::Wrong(format!("{form:?}: {d}")),
        }
    });
    Ok(())
}
