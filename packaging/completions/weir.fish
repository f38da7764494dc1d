# Completion for weir.

complete -c weir -f
complete -c weir -n __fish_use_subcommand -a help -d "What a directive takes"
complete -c weir -n __fish_use_subcommand -a analyze -d "What access logs say"
complete -c weir -n "__fish_seen_subcommand_from analyze" -F -a "(weir analyze --help 2>/dev/null | string match -r '^  --[a-z-]+' | string trim)"
complete -c weir -n "__fish_seen_subcommand_from help" -a "(weir help 2>/dev/null | string match -r '^  .*' | string trim)"
complete -c weir -s h -d "Show help"
complete -c weir -s v -d "Show the version"
complete -c weir -s V -d "Show the version and what was built in"
complete -c weir -s t -d "Test the configuration"
complete -c weir -s T -d "Test the configuration and print it"
complete -c weir -l strict -d "Warnings fail the test"
complete -c weir -s q -d "Say only errors in a test"
complete -c weir -s s -x -a "stop quit reload reopen" -d "Send a signal"
complete -c weir -s p -x -a "(__fish_complete_directories)" -d "Prefix"
complete -c weir -s e -r -F -d "Error log"
complete -c weir -s c -r -F -d "Configuration"
complete -c weir -s g -x -d "Directives for the main context"
