//! Encodes instructions to bytes.

use super::inst::{CodeItem, Label};
use iced_x86::{Code, Encoder, Instruction};

/// Encodes a function that begins at an address; places of constants are addresses, which do not depend
/// on where all of it comes to lie, since code names them by their distance. The error says what the
/// encoder does not know.
pub(crate) fn encode(code: &[CodeItem], start: u64) -> Result<Vec<u8>, String> {
    let mut encoder = Encoder::new(64);
    let mut labels: Vec<Option<u64>> = Vec::new();
    // Jumps: where they end, and to which label.
    let mut jumps: Vec<(usize, Label)> = Vec::new();
    let mut at = start;
    for done in code {
        match done {
            CodeItem::Ins(i) => at += one(&mut encoder, i, at)?,
            CodeItem::Label(l) => {
                let k = l.0 as usize;
                labels.resize(labels.len().max(k + 1), None);
                labels[k] = Some(at);
            }
            CodeItem::Jump(kind, l) => {
                let mut jump = Instruction::default();
                jump.set_code(*kind);
                jump.set_op_kind(0, iced_x86::OpKind::NearBranch64);
                jump.set_near_branch64(at);
                at += one(&mut encoder, &jump, at)?;
                jumps.push(((at - start) as usize, *l));
            }
        }
    }
    let mut bytes = encoder.take_buffer();
    for (end, l) in jumps {
        let to = labels.get(l.0 as usize).copied().flatten();
        let to = to.ok_or_else(|| format!("label {} is nowhere", l.0))?;
        let distance = to as i64 - (start as i64 + end as i64);
        let distance = i32::try_from(distance).map_err(|_| "a jump is too far".to_string())?;
        let place = bytes.get_mut(end - 4..end).ok_or("a jump has no distance")?;
        place.copy_from_slice(&distance.to_le_bytes());
    }
    Ok(bytes)
}

fn one(encoder: &mut Encoder, i: &Instruction, at: u64) -> Result<u64, String> {
    let n = encoder.encode(i, at).map_err(|e| format!("{:?}: {e}", i.code()))?;
    Ok(n as u64)
}

/// Jumps are encoded with distances of 32 bits, which come last.
pub(crate) const JUMP: Code = Code::Jmp_rel32_64;
