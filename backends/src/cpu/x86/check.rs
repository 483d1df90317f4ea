//! Checks every emitted function by disassembling it; the engine does so with debug assertions.
//!
//! A function makes no calls. Every jump ends at an instruction of the function. The upper halves of vector registers
//! are cleared on every exit, since code that does not expect them would be slow. No instruction belongs to an
//! extension beyond the chosen width.

use crate::cpu::codegen::vector_width::Vectors;
use iced_x86::{
    Code, CpuidFeature, Decoder, DecoderOptions, FlowControl, Instruction, OpKind, Register,
};

/// What hosts of any width have.
const ALWAYS: [CpuidFeature; 8] = [
    CpuidFeature::INTEL8086,
    CpuidFeature::INTEL186,
    CpuidFeature::INTEL386,
    CpuidFeature::INTEL486,
    CpuidFeature::X64,
    CpuidFeature::CMOV,
    CpuidFeature::SSE,
    CpuidFeature::SSE2,
];

/// What [`Vectors::Avx2`] promises, and what [`Vectors::Avx512`] does beside that.
const AVX2: [CpuidFeature; 5] = [
    CpuidFeature::AVX,
    CpuidFeature::AVX2,
    CpuidFeature::FMA,
    CpuidFeature::F16C,
    CpuidFeature::BMI2,
];
const AVX512: [CpuidFeature; 4] =
    [CpuidFeature::AVX512F, CpuidFeature::AVX512BW, CpuidFeature::AVX512DQ, CpuidFeature::AVX512VL];

/// Reads a function from its first byte to its last.
pub(crate) fn checked(code: &[u8], vectors: Vectors) -> Result<(), String> {
    let all: Vec<Instruction> =
        Decoder::with_ip(64, code, 0, DecoderOptions::NONE).iter().collect();
    let starts = |ip: u64| all.binary_search_by_key(&ip, Instruction::ip).is_ok();
    let mut targets: Vec<u64> = Vec::new();
    for i in &all {
        let refuse = |what: &str| Err(format!("{:?} at {:x} {what}", i.code(), i.ip()));
        if i.is_invalid() {
            return refuse("is no instruction");
        }
        if let Some(feature) = i.cpuid_features().iter().find(|&&f| !promised(f, vectors)) {
            return refuse(&format!(
                "is of {feature:?}, which {} bits do not promise",
                vectors.bits()
            ));
        }
        match i.flow_control() {
            FlowControl::Next | FlowControl::Return => {}
            FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch => {
                if !starts(i.near_branch_target()) {
                    return refuse("goes where no instruction begins");
                }
                targets.push(i.near_branch_target());
            }
            _ => return refuse("leaves the function"),
        }
    }
    match all.last() {
        Some(last) if last.flow_control() == FlowControl::Return => {}
        _ => return Err("the function does not end with a return".into()),
    }
    let wide = all.iter().any(vector);
    let mut clean = !wide;
    for i in &all {
        clean = match i.code() {
            Code::VEX_Vzeroupper => true,
            // From elsewhere, vectors may not be clear.
            _ if wide && (vector(i) || targets.contains(&i.ip())) => false,
            _ => clean,
        };
        if i.flow_control() == FlowControl::Return && !clean {
            return Err(format!("upper halves are not clear at the return at {:x}", i.ip()));
        }
    }
    Ok(())
}

fn promised(f: CpuidFeature, vectors: Vectors) -> bool {
    ALWAYS.contains(&f)
        || vectors >= Vectors::Avx2 && AVX2.contains(&f)
        || vectors >= Vectors::Avx512 && AVX512.contains(&f)
}

/// Whether an instruction names a register of vectors.
fn vector(i: &Instruction) -> bool {
    let is = |r: Register| r.is_xmm() || r.is_ymm() || r.is_zmm();
    (0..i.op_count()).any(|k| i.op_kind(k) == OpKind::Register && is(i.op_register(k)))
        || is(i.memory_index())
}

#[cfg(test)]
mod tests {
    use super::super::encode::encode;
    use super::super::inst::{AllocatedOperand, CodeItem, Label, instruction};
    use super::*;

    fn plain(code: Code) -> CodeItem {
        CodeItem::Ins(instruction(code, &[]))
    }

    fn add(code: Code, r: Register) -> CodeItem {
        CodeItem::Ins(instruction(
            code,
            &[AllocatedOperand::Reg(r), AllocatedOperand::Reg(r), AllocatedOperand::Reg(r)],
        ))
    }

    fn said(code: &[CodeItem], vectors: Vectors) -> String {
        checked(&encode(code, 0).expect("encodes"), vectors).err().unwrap_or_default()
    }

    #[test]
    fn upper_halves_are_clear_on_every_way_out() {
        let wide = add(Code::VEX_Vaddps_ymm_ymm_ymmm256, Register::YMM1);
        let (clear, ret) = (plain(Code::VEX_Vzeroupper), plain(Code::Retnq));
        let (to, jump) = (CodeItem::Label(Label(0)), CodeItem::Jump(Code::Je_rel32_64, Label(0)));
        let good = [
            vec![ret.clone()],
            vec![wide.clone(), clear.clone(), ret.clone()],
            vec![jump.clone(), wide.clone(), to.clone(), clear.clone(), ret.clone()],
        ];
        for code in good {
            assert_eq!(said(&code, Vectors::Avx2), "");
        }
        let bad = [
            vec![wide.clone(), ret.clone()],
            vec![clear.clone(), wide.clone(), ret.clone()],
            vec![wide.clone(), jump, clear.clone(), to, ret.clone()],
            vec![wide.clone(), clear.clone(), ret.clone(), wide, ret],
        ];
        for code in bad {
            assert!(said(&code, Vectors::Avx2).contains("not clear"), "{code:?}");
        }
    }

    #[test]
    fn extensions_are_those_of_the_width() {
        let end = [plain(Code::VEX_Vzeroupper), plain(Code::Retnq)];
        let code = |one: CodeItem| [vec![one], end.to_vec()].concat();
        let wider = code(add(Code::EVEX_Vaddps_zmm_k1z_zmm_zmmm512b32_er, Register::ZMM1));
        let shorter = code(add(Code::EVEX_Vaddps_ymm_k1z_ymm_ymmm256b32, Register::YMM1));
        let plain = code(add(Code::VEX_Vpaddd_ymm_ymm_ymmm256, Register::YMM1));
        let other = code(add(Code::EVEX_Vpmadd52luq_zmm_k1z_zmm_zmmm512b64, Register::ZMM1));
        assert_eq!(said(&wider, Vectors::Avx512), "");
        assert!(said(&wider, Vectors::Avx2).contains("AVX512F"));
        assert!(said(&shorter, Vectors::Avx2).contains("AVX512"));
        assert_eq!(said(&plain, Vectors::Avx2), "");
        assert!(said(&plain, Vectors::Narrow).contains("AVX2"));
        assert!(said(&other, Vectors::Avx512).contains("IFMA"));
    }

    #[test]
    fn nothing_is_called_and_functions_end() {
        let mut call = instruction(Code::Call_rm64, &[AllocatedOperand::Reg(Register::RAX)]);
        call.set_op_register(0, Register::RAX);
        let ret = plain(Code::Retnq);
        assert!(said(&[CodeItem::Ins(call), ret.clone()], Vectors::Avx512).contains("leaves"));
        assert!(said(&[plain(Code::VEX_Vzeroupper)], Vectors::Avx512).contains("end"));
        // A jump into the middle of an instruction, and bytes that are none.
        assert!(checked(&[0xeb, 0x01, 0x48, 0x89, 0xc0, 0xc3], Vectors::Avx512).is_err());
        assert!(checked(&[0x06, 0xc3], Vectors::Avx512).is_err());
    }
}
