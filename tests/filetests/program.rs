//! Tests of `.program` files: programs of kernels, run by the kernel evaluator.

use crate::case::{Got, Line, fixpoint, place, printed_lines, takes};
use crate::common::effects::printing;
use crate::file::{Case, Key, TestFile};
use crate::value;
use adfuse::backends::Array;
use adfuse::backends::reference::kernel::{LibraryFunctions, run_measured};
use adfuse::ir::kernel::text::parse;
use adfuse::ir::kernel::{Program, Verified, verify};
use adfuse::ir::{At, DType, Diagnostic, Kind, Literal};

/// Runs test `k`. An error is one of the file, not of the compiler.
pub(crate) fn run(file: &TestFile, k: usize) -> Result<Got, String> {
    let case = &file.cases[k];
    let d = &case.directive;
    takes(d, &[])?;
    let checked = parse(&file.text).map_err(|e| vec![e]).and_then(verify);
    let program = match (d.name.as_str(), checked) {
        ("error", Ok(_)) => return Ok(Got::Broken("expected errors, found none".into())),
        ("error", Err(errors)) => return Ok(Got::Lines(error_lines(&file.text, &errors))),
        (_, Ok(program)) => program,
        (_, Err(errors)) => {
            let lines = error_lines(&file.text, &errors).into_iter().map(|l| l.text);
            return Ok(Got::Broken(lines.collect::<Vec<_>>().join("\n")));
        }
    };
    match d.name.as_str() {
        "print" => Ok(fixpoint(&file.program(), &program.to_string())),
        "run" => evaluated(file, case, &program),
        "peak" => {
            let zero = |t: adfuse::ir::TensorType| {
                Array::splat(&t.dims().unwrap_or_default(), Literal::zero(t.dtype))
            };
            let types = program.inputs().filter_map(|b| program.buffers[b].ty());
            let args: Result<Vec<Array>, Diagnostic> = types.map(zero).collect();
            let args = args.map_err(|d| d.to_string())?;
            let (_, peak) = run_measured(&program, &args, &mut Known).map_err(|d| d.to_string())?;
            Ok(Got::Lines(vec![output(Array::scalar(Literal::from_i64(DType::I64, peak as i64)))]))
        }
        name => Err(format!("no test `{name}` of programs")),
    }
}

fn output(value: Array) -> Line {
    Line { key: Key::Output, text: value::print(&value), value: Some(value) }
}

/// The results for the inputs of the directive.
fn evaluated(file: &TestFile, case: &Case, program: &Verified<Program>) -> Result<Got, String> {
    let mut args = Vec::new();
    for b in program.inputs() {
        let data = &program.buffers[b];
        let input = case.inputs.iter().find(|(n, _)| *n == data.name);
        let (_, text) = input.ok_or(format!("no `input {} = ..`", data.name))?;
        let ty = data.ty().ok_or("a negative extent")?;
        args.push(value::parse(text, &ty).map_err(|e| format!("input {}: {e}", data.name))?);
    }
    if args.len() != case.inputs.len() {
        return Err(format!("{} inputs, {} are used", case.inputs.len(), args.len()));
    }
    let (ran, printed) = printing(|| run_measured(program, &args, &mut Known));
    Ok(Got::Lines(match ran {
        Ok((results, _)) => printed_lines(printed).chain(results.into_iter().map(output)).collect(),
        Err(d) => error_lines(&file.text, &[d]),
    }))
}

/// Errors as `LINE:COL KIND message`, or as ``@f KIND message, at `step 0: kernel @k` ``.
fn error_lines(text: &str, errors: &[Diagnostic]) -> Vec<Line> {
    let line = |d: &Diagnostic| {
        let place = place(text, d);
        let at = d.at.inst.as_ref().map_or(String::new(), |i| format!(", at `{i}`"));
        let text = format!("{place} {:?} {}{at}", d.kind, d.message);
        Line { key: Key::Error, text, value: None }
    };
    errors.iter().map(line).collect()
}

/// The functions of libraries that these files may call.
struct Known;

impl LibraryFunctions for Known {
    fn call(&mut self, name: &str, inputs: &[Array]) -> Option<Result<Vec<Array>, Diagnostic>> {
        let twice = |a: &Array| {
            let doubled: Vec<f64> = a.to_f64s().into_iter().map(|x| 2.0 * x).collect();
            Array::from_f64s(a.dtype(), a.dims(), &doubled)
        };
        let flat = |a: &Array| Array::from_bits(a.dtype(), &[a.len() as u64], &a.to_bits());
        match name {
            "double" => Some(inputs.iter().map(twice).collect()),
            "flatten" => Some(inputs.iter().map(flat).collect()),
            "fails" => Some(Err(Diagnostic::new(At::default(), Kind::Usage, "out of luck"))),
            _ => None,
        }
    }
}
