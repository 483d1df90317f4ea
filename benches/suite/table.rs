//! Tables of reports, in Markdown with columns of equal width.

/// Lines of a table: the head, and a row for each of what is reported.
#[derive(Debug)]
pub struct ReportTable {
    widths: Vec<usize>,
}

impl ReportTable {
    /// A table whose columns are as wide as their heads at least; its first two lines.
    pub fn new(columns: &[(&str, usize)]) -> (ReportTable, String) {
        let widths = columns.iter().map(|(head, width)| *width.max(&head.chars().count()));
        let table = ReportTable { widths: widths.collect() };
        let heads: Vec<String> = columns.iter().map(|(head, _)| (*head).to_owned()).collect();
        let line = vec!["---".to_owned(); columns.len()];
        let lines = format!("{}\n{}", table.row(&heads), table.row(&line));
        (table, lines)
    }

    /// A row.
    pub fn row(&self, cells: &[String]) -> String {
        let widths = self.widths.iter().copied();
        let cells = cells.iter().zip(widths).map(|(cell, width)| format!(" {cell:width$} |"));
        format!("|{}", cells.collect::<String>())
    }
}

/// Milliseconds with three digits.
pub fn ms(seconds: f64) -> String {
    let ms = seconds * 1e3;
    match ms {
        _ if ms >= 100.0 => format!("{ms:.0}"),
        _ if ms >= 10.0 => format!("{ms:.1}"),
        _ if ms >= 1.0 => format!("{ms:.2}"),
        _ => format!("{ms:.3}"),
    }
}

/// Bytes in MiB.
pub fn mib(bytes: u64) -> String {
    let mib = bytes as f64 / f64::from(1 << 20);
    if mib >= 100.0 { format!("{mib:.0}") } else { format!("{mib:.2}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_of_equal_width() {
        let (table, head) = ReportTable::new(&[("name", 6), ("milliseconds", 3)]);
        let row = table.row(&["a".into(), ms(0.0123)]);
        assert_eq!(head, "| name   | milliseconds |\n| ---    | ---          |");
        assert_eq!(row, "| a      | 12.3         |");
        assert_eq!([ms(1.0), ms(2e-3), ms(2e-6)], ["1000", "2.00", "0.002"]);
        assert_eq!([mib(1 << 20), mib(300 << 20)], ["1.00", "300"]);
    }
}
