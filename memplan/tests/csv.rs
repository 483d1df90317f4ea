//! Reading and writing the CSV form.

use adfuse_memplan::csv::{CsvError, CsvErrorKind, CsvTable, read, write};
use adfuse_memplan::{BufferSpec, Gap, Offset, PackOptions, check_offsets, plan};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

fn text(table: &CsvTable, offsets: bool) -> String {
    let packing = plan(&table.problem, &PackOptions::default()).unwrap();
    let mut out = Vec::new();
    write(&mut out, table, offsets.then_some(&packing.offsets)).unwrap();
    String::from_utf8(out).unwrap()
}

fn fault(input: &str) -> CsvError {
    read(input.as_bytes()).unwrap_err()
}

const EXAMPLE: &str = "id,lower,upper,size\nb1,0,3,4\nb2,3,9,4\nb3,0,9,4\nb4,9,21,4\nb5,0,21,4\n";

#[test]
fn the_public_example_packs_into_its_capacity() {
    let mut table = read(EXAMPLE.as_bytes()).unwrap();
    assert_eq!(text(&table, false), EXAMPLE);
    table.problem.capacity = Some(12);
    let written = text(&table, true);
    assert!(written.starts_with("id,lower,upper,size,offset\nb1,0,3,4,"), "{written}");
    let mut packed = read(written.as_bytes()).unwrap();
    let offsets = packed.take_offsets().unwrap();
    assert_eq!(check_offsets(&packed.problem, &offsets), Ok(12));
    assert_eq!(packed.problem.buffers, table.problem.buffers);
}

#[test]
fn all_columns_are_read_in_any_order() {
    let input = "\u{feff}size,hint,gaps,upper,alignment,offset,lower,buffer\n\
                 64,,4-6@0:16 8-9,12,32,96,2,\"a, \"\"b\"\"\"\n\
                 8,7,,5,,,5,\n";
    let table = read(input.as_bytes()).unwrap();
    let ids: Vec<&str> = table.ids.values().map(String::as_str).collect();
    assert_eq!(ids, ["a, \"b\"", ""]);
    let first = BufferSpec::new(2..12, 64)
        .with_align(32)
        .with_fixed(Offset(96))
        .with_gap(Gap { live: 4..6, window: Some(0..16) })
        .with_gap(Gap { live: 8..9, window: None });
    let buffers: Vec<&BufferSpec> = table.problem.buffers.values().collect();
    assert_eq!(buffers, [&first, &BufferSpec::new(5..5, 8)]);
    let again = read(text(&table, false).as_bytes()).unwrap();
    assert_eq!(again, table);
}

#[test]
fn an_end_column_is_inclusive() {
    let table = read("buffer_id,begin,end,size,gaps\r\nx,1,4,8,2-2\r\n".as_bytes()).unwrap();
    let buffer = table.problem.buffers.values().next().unwrap();
    assert_eq!(*buffer, BufferSpec::new(1..5, 8).with_gap(Gap { live: 2..3, window: None }));
}

#[test]
fn faults_are_placed_by_line_and_column() {
    use CsvErrorKind::*;
    let number = |s: &str| NotANumber(s.to_string());
    let cases = [
        ("", 1, 1, NoHeader),
        ("id,lower,upper\n", 1, 4, MissingColumn("size")),
        ("id,lower,size\n", 1, 4, MissingColumn("upper")),
        ("id,lower,upper,size,colour\n", 1, 5, UnknownColumn("colour".into())),
        ("id,lower,upper,size,end\n", 1, 5, RepeatedColumn("end".into())),
        ("id,start,lower,upper,size\n", 1, 3, RepeatedColumn("lower".into())),
        ("id,lower,upper,size\na,0,1\n", 2, 4, FieldCount { expected: 4, found: 3 }),
        ("id,lower,upper,size\na,0,1,2,3\n", 2, 5, FieldCount { expected: 4, found: 5 }),
        ("id,lower,upper,size\na,0,1,2\n\nb,0,-1,2\n", 4, 3, number("-1")),
        ("id,lower,upper,size\r\na,0,1,1\r\n\r\nb,0,x,1\r\n", 4, 3, number("x")),
        ("id,lower,upper,size\n\"a\nb\",0,1,1\nc,0,x,1\n", 4, 3, number("x")),
        ("id,lower,upper,size\na,0,1,+2\n", 2, 4, number("+2")),
        ("id,lower,upper,size\na, 0,1,2\n", 2, 2, number(" 0")),
        ("id,lower,upper,size\na,0,1,\n", 2, 4, number("")),
        ("id,lower,upper,size\na,0,1,18446744073709551616\n", 2, 4, number("18446744073709551616")),
        ("id,lower,end,size\na,0,18446744073709551615,1\n", 2, 3, number("18446744073709551615")),
        ("id,lower,upper,size\na,3,2,1\n", 2, 3, ReversedLife { lower: 3, upper: 2 }),
        ("id,lower,upper,size,alignment\na,0,1,1,24\n", 2, 5, Alignment(24)),
        ("id,lower,upper,size,alignment\na,0,1,1,0\n", 2, 5, Alignment(0)),
        ("id,lower,upper,size,gaps\na,0,9,1,3-5@7\n", 2, 5, NotAGap("3-5@7".into())),
        ("id,lower,upper,size\na,0,1,2\na,0,1,2\n", 3, 1, RepeatedId { id: "a".into(), first: 2 }),
    ];
    for (input, line, column, kind) in cases {
        assert_eq!(fault(input), CsvError { line, column, kind }, "{input}");
    }
    let latin = read(&b"id,lower,upper,size\n\xe9,0,1,2\n"[..]).unwrap_err();
    assert_eq!(latin, CsvError { line: 2, column: 1, kind: NotText });
    assert_eq!(
        fault("id,lower,upper,size\na,0,x,2\n").to_string(),
        "line 2, column 3: `x` is not a number of 64 bits without sign"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, rng_seed: RngSeed::Fixed(0), ..ProptestConfig::default() })]

    #[test]
    fn no_input_panics(tail in prop::collection::vec(any::<u8>(), 0..200), ascii in "[a-z0-9,\"\n@:\\- ]{0,200}") {
        let _ = read(&tail[..]);
        let _ = read(ascii.as_bytes());
        let mut input = b"id,lower,upper,size,alignment,gaps,offset\n".to_vec();
        input.extend(&tail);
        if let Ok(table) = read(&input[..]) {
            let _ = plan(&table.problem, &PackOptions::default());
        }
    }

    #[test]
    fn what_is_written_is_read_back(
        rows in prop::collection::vec((".{0,8}", 0..u64::MAX, 0..u64::MAX, any::<u64>(), 0..64u32), 0..8),
    ) {
        let mut table = CsvTable::default();
        for (index, (id, s, t, size, align)) in rows.into_iter().enumerate() {
            table.ids.push(format!("{id}{index}"));
            table.problem.push(BufferSpec::new(s.min(t)..s.max(t), size).with_align(1 << align));
        }
        let mut out = Vec::new();
        write(&mut out, &table, None).unwrap();
        let again = read(&out[..]).unwrap();
        prop_assert_eq!((again.ids, again.problem), (table.ids, table.problem));
    }
}
