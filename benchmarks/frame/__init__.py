"""What all benchmarks share: rounds in turn, ratios, the table, the plots and the page. Knows no benchmark."""
