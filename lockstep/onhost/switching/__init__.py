"""One hot model: gate, precheck, switch, wedge watch."""
