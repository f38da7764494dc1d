# Completion for weir, and for nginx where that is Weir.

_weir() {
	local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
	COMPREPLY=()
	if [[ ${COMP_WORDS[1]} == analyze && $COMP_CWORD -gt 1 ]]; then
		case $previous in
		--output) COMPREPLY=($(compgen -W "terminal html json csv" -- "$current")) ;;
		--anonymize) COMPREPLY=($(compgen -W "shorten hash" -- "$current")) ;;
		*)
			COMPREPLY=($(compgen -f -- "$current"))
			[[ $current == -* ]] && COMPREPLY=($(compgen -W "$("$1" analyze --help 2>/dev/null | sed -n 's/^  \(--[a-z-]*\).*/\1/p')" -- "$current"))
			;;
		esac
		return
	fi
	case $previous in
	-s) COMPREPLY=($(compgen -W "stop quit reload reopen" -- "$current")) ;;
	-c | -e) COMPREPLY=($(compgen -f -- "$current")) ;;
	-p) COMPREPLY=($(compgen -d -- "$current")) ;;
	-g) ;;
	doctor) COMPREPLY=($(compgen -W "--json --help -c -p -g" -- "$current")) ;;
	profile) COMPREPLY=($(compgen -W "--seconds --frequency --worker --help -o -P -c -p" -- "$current")) ;;
	help) COMPREPLY=($(compgen -W "$("$1" help 2>/dev/null | sed -n 's/^  //p')" -- "$current")) ;;
	*) COMPREPLY=($(compgen -W "help analyze doctor profile -h -v -V -t -T -q -s -p -e -c -g --strict" -- "$current")) ;;
	esac
}

complete -o filenames -F _weir weir nginx
