"""What a verification is handed on as: SARIF, JUnit, one page of HTML."""
